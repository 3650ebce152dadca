"""Walking live objects runs none of the user's code and finds what they hold; needs no torch."""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import queue
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memguard.evidence.naming.names import innermost, text_of
from memguard.heap.attributes import fields_of
from memguard.heap.children import Via
from memguard.heap.walk import Link, Walk, innermost_newest


class Leaf(torch.Tensor):
    """What is looked for."""


def find(root: object) -> list[str]:
    """The names under which leaves are found below an object."""
    found: list[str] = []

    def meet(link: Link) -> None:
        if issubclass(type(link.value), Leaf):
            found.append(text_of(innermost(link)))

    walk = Walk(meet)
    walk.begin([Link(root, Via.ROOT)])
    walk.run()
    return found


class Trap:
    """Runs into the test's arms whenever any of its code is run."""

    def __init__(self) -> None:
        object.__setattr__(self, "inside", Leaf())

    def fail(self, *args: object) -> Any:
        raise AssertionError("the user's code was run")

    __getattr__ = __getattribute__ = fail  # type: ignore[assignment]
    __eq__ = __hash__ = __repr__ = __str__ = __len__ = __iter__ = __bool__ = __contains__ = fail  # type: ignore[assignment]
    __class__ = property(fail)  # type: ignore[assignment]
    value = property(fail)


class MetaTrap(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError("the user's metaclass was run")

    def __instancecheck__(cls, instance: object) -> bool:
        raise AssertionError("the user's metaclass was run")

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise AssertionError("the user's metaclass was run")

    def __hash__(cls) -> int:
        raise AssertionError("the user's metaclass was run")


class TrapList(list):  # type: ignore[type-arg]
    def fail(self, *args: object) -> Any:
        raise AssertionError("the user's code was run")

    __iter__ = __len__ = __getitem__ = __contains__ = __bool__ = fail  # type: ignore[assignment]


class TrapDict(dict):  # type: ignore[type-arg]
    def fail(self, *args: object) -> Any:
        raise AssertionError("the user's code was run")

    __iter__ = __len__ = __getitem__ = items = keys = values = get = fail  # type: ignore[assignment]


def test_no_code_of_the_user_runs() -> None:
    """Objects whose every method fails are walked through, their attributes found by what they really hold."""
    meta = MetaTrap("Meta", (), {})
    made = object.__new__(meta)
    assert find([Trap()]) == ["Trap.inside"]
    assert len(find([TrapList([Leaf()]), TrapDict(a=Leaf()), made, meta])) == 2


def test_keys_that_cannot_be_hashed_again() -> None:
    """A dict is read without hashing or comparing its keys."""

    class Key:
        broken = False

        def __hash__(self) -> int:
            assert not Key.broken
            return 1

        def __eq__(self, other: object) -> bool:
            assert not Key.broken
            return self is other

    table = {Key(): Leaf(), Key(): Leaf()}
    Key.broken = True
    assert len(find(table)) == 2


class Slotted:
    __slots__ = ("left", "never")

    def __init__(self) -> None:
        self.left = Leaf()


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value

    def method(self) -> None: ...


def generator(value: object) -> Iterator[int]:
    kept = [value]
    yield 1
    del kept


def closure(value: object) -> Callable[[], object]:
    def inner() -> object:
        return value

    return inner


def default(value: Any = None) -> Any:
    return value


def started(value: object) -> Iterator[int]:
    made = generator(value)
    next(made)
    return made


def test_everything_that_holds_is_entered() -> None:
    """Containers, slots, closures, generators, partials, methods, exceptions, frames and caches are seen through."""

    def frame_with(value: object) -> types.FrameType:
        return sys._getframe()

    def fail(value: object) -> BaseException:
        try:
            raise ValueError(value)
        except ValueError as error:
            return error

    cached = functools.lru_cache(lambda key: Leaf())
    cached(1)
    local, waiting = threading.local(), queue.SimpleQueue[Leaf]()
    local.kept = Leaf()
    waiting.put(Leaf())
    variable = contextvars.ContextVar("variable", default=(Leaf(),))

    def function() -> None: ...

    function.kept = Leaf()  # type: ignore[attr-defined]
    holders: dict[str, object] = {
        "list": [Leaf()],
        "tuple": (Leaf(),),
        "set": {Leaf()},
        "dict": {"a": Leaf()},
        "dict key": {Leaf(): 1},
        "defaultdict": collections.defaultdict(list, {"a": [Leaf()]}),
        "ordered dict": collections.OrderedDict(a=Leaf()),
        "deque": collections.deque([Leaf()]),
        "queue": waiting,
        "slots": Slotted(),
        "attribute": Plain(Leaf()),
        "namespace": SimpleNamespace(a=Leaf()),
        "closure": closure(Leaf()),
        "partial": functools.partial(default, Leaf()),
        "keyword of a partial": functools.partial(default, value=Leaf()),
        "bound method": Plain(Leaf()).method,
        "generator": started(Leaf()),
        "exception": fail(Leaf()),
        "frame": frame_with(Leaf()),
        "cache": cached,
        "thread local": local,
        "context variable": variable,
        "function attribute": function,
        "iterator": iter([Leaf()]),
        "zip": zip([Leaf()], [1], strict=False),
        "nested": [{"a": (Plain([Leaf()]),)}],
    }
    assert [name for name, holder in holders.items() if not find([holder])] == []


def test_suspended_coroutine_is_entered() -> None:
    """A coroutine that waits holds its locals."""

    class Pause:
        def __await__(self) -> Iterator[None]:
            yield

    async def work() -> None:
        kept = Leaf()
        await Pause()
        del kept

    coroutine = work()
    coroutine.send(None)
    assert find([coroutine]) == ["kept"]
    coroutine.close()


def test_long_containers_are_sampled_at_both_ends_and_in_the_middle() -> None:
    """A leaf at the end of a million elements is found; the walk stays short."""
    long = [None] * 1_000_000
    long[-1] = Leaf()  # type: ignore[call-overload]
    assert len(find(long)) == 1
    table: dict[int, object] = dict.fromkeys(range(100_000))
    table[99_999] = Leaf()
    assert len(find(table)) == 1


def test_bounds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk stops at the bound of objects and of depth, and says so."""
    deep: list[object] = [Leaf()]
    for _ in range(20):
        deep = [deep]
    assert find(deep) == []
    wide = [[[index]] for index in range(60)]
    monkeypatch.setattr("memguard.heap.walk.MAX_OBJECTS", 50)
    walk = Walk(lambda link: None)
    walk.begin([Link(wide, Via.ROOT)])
    walk.run()
    assert not walk.complete


def test_cycles_end() -> None:
    """Objects that hold each other are met once."""
    one, two = Plain(None), Plain(None)
    one.value, two.value = two, [one, Leaf()]
    assert find([one]) == ["Plain.value"]


@pytest.mark.parametrize("size", [0, 1, 64, 65, 1000])
def test_containers_of_any_length(size: int) -> None:
    """At least one leaf of a container full of them is found, none in an empty one."""
    for holder in (
        [Leaf() for _ in range(size)],
        {index: Leaf() for index in range(size)},
        {Leaf() for _ in range(size)},
    ):
        assert bool(find(holder)) is bool(size)


def test_below_a_name_its_newest_container_is_found() -> None:
    """Of a few lists by key the newest, however long; of a long list none that is longer than itself."""
    by_event = {"epoch": [0], "trial": list(range(5))}
    assert innermost_newest(Link(by_event, Via.GLOBAL, "listeners")).value is by_event["trial"]
    rows = [list(range(500)) for _ in range(100)]
    assert innermost_newest(Link(rows, Via.GLOBAL, "rows")).value is rows


def test_a_class_with_slots_goes_when_the_program_lets_it_go() -> None:
    """What is known of its slots, to read its objects, keeps it no longer."""

    def made() -> weakref.ref[type]:
        class Record:
            __slots__ = ("kept",)

        record = Record()
        record.kept = 1  # type: ignore[attr-defined]
        assert fields_of(record) == fields_of(record) == {"kept": 1}
        return weakref.ref(Record)

    gone = made()
    gc.collect()
    assert gone() is None

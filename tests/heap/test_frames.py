"""Frames of the user's code and their locals; needs no torch, so it runs on every Python."""

import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator

from memguard.heap.frames import is_user_file, is_user_frame, is_user_module, read_locals, user_frames


class Thing:
    pass


def test_reading_locals_gives_names_and_values() -> None:
    """All local variables are read, cell variables too."""
    one, two = Thing(), Thing()

    def inner() -> object:
        return two

    found = read_locals(sys._getframe())
    assert found["one"] is one
    assert found["two"] is two
    assert found["inner"] is inner


def test_reading_locals_leaves_nothing_on_the_frame() -> None:
    """An object dies when its last name is deleted, although the frame was read before."""
    thing = Thing()
    ref = weakref.ref(thing)
    found = read_locals(sys._getframe())
    del found
    del thing
    assert ref() is None


def test_reading_a_callers_locals_leaves_nothing_there() -> None:
    """The same for a frame further up, with a cell variable, read several times."""

    def look() -> None:
        for _ in range(3):
            read_locals(sys._getframe(1))

    thing: Thing | None = Thing()
    ref = weakref.ref(thing)

    def use() -> object:
        nonlocal thing
        return thing

    look()
    thing = None
    assert ref() is None
    assert use() is None


def test_reading_under_a_tracer_loses_no_variable() -> None:
    """While a trace function is at work, reading empties none of the user's variables."""

    def tracer(frame: object, event: str, arg: object) -> object:
        return tracer

    def traced() -> int:
        first = 3
        read_locals(sys._getframe())
        second = 4
        return first + second

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        result = traced()
    finally:
        sys.settrace(before)
    assert result == 7


def test_dict_of_a_user_who_called_locals_is_not_touched() -> None:
    """`locals()` that the user keeps stays as it was."""

    def work() -> tuple[dict[str, object], list[str], int]:
        first = 1
        mine = locals()
        names = list(mine)
        later = 2
        read_locals(sys._getframe())
        return dict(mine), names, first + later

    mine, names, total = work()
    assert (list(mine), total) == (names, 3)


def test_an_attribute_called_locals_is_no_call_of_locals() -> None:
    """A function that only names an attribute so is read like any other."""

    class Scope:
        locals = 3

    def step() -> dict[str, object]:
        kept = Scope().locals
        return {**read_locals(sys._getframe()), "kept again": kept}

    assert step()["kept"] == 3


def test_module_level_is_never_cleared() -> None:
    """A module's frame is read, and its globals stay whole."""
    namespace: dict[str, object] = {"__name__": "somewhere", "sys": sys, "read": read_locals}
    exec(compile("value = 3\nfound = read(sys._getframe())\nafter = value", "somewhere.py", "exec"), namespace)
    assert namespace["found"]["value"] == 3  # type: ignore[index]
    assert namespace["after"] == 3


def test_class_body_is_never_cleared() -> None:
    """The names of a class body being run survive reading."""

    class Body:
        value = 5
        seen = read_locals(sys._getframe())

    assert Body.value == 5
    assert Body.seen["value"] == 5


def test_suspended_generator_is_read_and_goes_on() -> None:
    """A generator's locals are read between two of its steps without harm."""

    def steps() -> Iterator[int]:
        total = 0
        thing = Thing()
        for number in range(3):
            total += number
            yield total
        del thing

    generator = steps()
    next(generator)
    assert read_locals(generator.gi_frame)["total"] == 0  # type: ignore[attr-defined]
    assert list(generator) == [1, 3]


def test_user_code_is_told_from_libraries() -> None:
    """The standard library, installed packages and memguard are not the user's; a script anywhere else is."""
    assert not is_user_file(os.__file__)
    assert not is_user_file(sysconfig.get_paths()["purelib"] + "/somewhere/module.py")
    assert not is_user_file("/env/lib/python3.12/site-packages/pkg/a.py")
    assert not is_user_file(read_locals.__code__.co_filename)
    assert not is_user_file("<string>")
    assert not is_user_file("<frozen importlib._bootstrap>")
    assert is_user_file("/home/me/project/train.py")
    assert is_user_file("train.py")
    assert is_user_file("<ipython-input-3-abc>")
    assert is_user_module("__main__", None)
    assert not is_user_module("torch.nn.modules.module", "/home/me/pytorch/torch/nn/modules/module.py")


def test_stack_is_innermost_first() -> None:
    """The user's frames come from the inside out, this test's among them."""

    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in user_frames()]

    names = inner()
    assert names.index("inner") < names.index("test_stack_is_innermost_first")
    assert is_user_frame(sys._getframe())


def test_main_thread_is_seen_from_another() -> None:
    """A thread sees its own frames first, then the main thread's."""
    seen: list[str] = []

    def work() -> None:
        seen.extend(frame.f_code.co_name for frame in user_frames())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "work" in seen[:2]
    assert "test_main_thread_is_seen_from_another" in seen


def test_reading_makes_no_garbage(without_collector: None) -> None:
    """Reading leaves no reference cycle for the collector."""

    def once() -> weakref.ref[Thing]:
        thing = Thing()
        read_locals(sys._getframe())
        list(user_frames())
        return weakref.ref(thing)

    assert once()() is None


def test_half_read_stack_holds_no_frame(without_collector: None) -> None:
    """Frames that are read only up to the one that was looked for keep nothing of it alive."""

    def once() -> weakref.ref[Thing]:
        thing = Thing()
        assert any(frame.f_code.co_name == "once" for frame in user_frames())
        return weakref.ref(thing)

    assert once()() is None

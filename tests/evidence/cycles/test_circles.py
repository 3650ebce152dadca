"""Which reference of a circle is named: the one to change, at the statement that makes it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.cycles.collected_graphs import look_at_garbage
from memguard.evidence.cycles.cycle_breaks import MAX_OBJECTS
from tests.evidence.loop import line_of


class Later:
    def __init__(self) -> None:
        self.rows = torch.ones(64)
        self.todo = None
        self.todo = functools.partial(self.work, 1)  # partial over a method

    def work(self, number: int) -> None:
        """Nothing."""


class Owner:
    def __init__(self) -> None:
        self.rows = torch.ones(64)
        self.part = Part(self)


class Part:
    def __init__(self, owner: Owner) -> None:
        self.owner = owner  # back to its owner


class Graph:
    def __init__(self) -> None:
        self.nodes, self.edges = Nodes(self), Edges(graph=self)


class Nodes:
    def __init__(self, graph: Graph) -> None:
        self.rows, self._parent = torch.ones(64), graph  # the first way back


class Edges:
    def __init__(self, *, graph: Graph) -> None:
        self._parent = graph


class Helped:
    def __init__(self) -> None:
        self.rows = torch.ones(64)
        self.helper = Helper()
        self.helper.set(self)  # gives itself away


class Helper:
    def set(self, helped: Helped) -> None:
        self.helped = helped


class Leaf:
    def __init__(self) -> None:
        self.state = torch.ones(64)
        self.above: Any = None
        self.below: list[Leaf] = []

    def add(self, leaf: Leaf) -> None:
        leaf.above = self  # set from outside
        self.below.append(leaf)


class Slotted:
    __slots__ = ("below", "parent", "state")

    def __init__(self, parent: Slotted | None = None) -> None:
        self.state, self.below = torch.ones(64), [] if parent is not None else [Slotted(self)]
        self.parent = parent  # in a slot


class Left:
    def __init__(self) -> None:
        self.state, self.right = torch.ones(64), None


class Right:
    def __init__(self) -> None:
        self.__left: Any = None

    def join(self, left: Any) -> None:
        left.right = self.me()
        self.__left = left  # later and private

    def me(self) -> Right:
        return self


class Hypothesis:
    def __init__(self, before: Hypothesis | None = None) -> None:
        self.state, self.before = torch.ones(64), before
        self.after: Hypothesis | None = None
        if before is not None:
            before.after = self  # both are known


class Base:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine  # one line of both


class Logs(Base):
    pass


class Saves(Base):
    pass


class Engine:
    def __init__(self) -> None:
        self.state, self.callbacks = torch.ones(64), [Logs(self), Saves(self)]


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.linear.register_forward_hook(self.keep)  # hook of its own

    def keep(self, *args: Any) -> None:
        """Nothing."""


class HookedLater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

        def keep(*args: Any) -> None:
            self.seen = args

        self.linear.register_forward_hook(keep)  # closure as a hook


def grown() -> None:
    leaf = Leaf()
    leaf.add(Leaf())


@pytest.mark.parametrize(
    ("make", "holder", "marker"),
    [
        (Later, "Later.todo", "partial over a method"),
        (Owner, "Part.owner", "back to its owner"),
        (Graph, "Nodes._parent", "the first way back"),
        (Helped, "Helped.helper", "gives itself away"),
        (grown, "Leaf.above", "set from outside"),
        (Slotted, "Slotted.parent", "in a slot"),
        (lambda: Hypothesis(Hypothesis()), "Hypothesis.after", "both are known"),
        (lambda: Right().join(Left()), "Right._Right__left", "later and private"),
        (Engine, ".engine", "one line of both"),
        (Hooked, "Hooked.linear", "hook of its own"),
        (HookedLater, "HookedLater.linear", "closure as a hook"),
    ],
)
def test_the_reference_to_change_is_named(make: Callable[[], Any], holder: str, marker: str) -> None:
    """Each kind of circle, three of them, with what hangs on them."""
    for _ in range(3):
        make()
    found = look_at_garbage()
    assert found is not None and found.circle is not None
    assert holder in (found.place.holder or "") and found.place.line == line_of(marker)
    assert found.circle.count == 3 and found.circle.bytes >= 3 * 256 and found.circle.is_closed_there


def test_what_a_circle_has_dragged_along_is_not_named() -> None:
    """A user's object that hangs on a list within itself is in no circle, and a library's circle is nobody's."""
    ring: list[Any] = [Part(None)]  # type: ignore[arg-type]
    ring.append(ring)
    del ring
    found = look_at_garbage()
    assert found is not None and found.circle is None and found.place.file is None


def test_a_long_ring_is_one_circle() -> None:
    """It is followed without recursion; before Python 3.11 each object has a dict besides."""
    node = Part(None)  # type: ignore[arg-type]
    first = node
    for _ in range(MAX_OBJECTS // 4):
        node = Part(node)  # type: ignore[arg-type]
    first.owner = node  # type: ignore[assignment]
    del node, first
    found = look_at_garbage()
    assert found is not None and found.place.holder == "Part.owner"

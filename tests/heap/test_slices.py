"""A walk in slices meets what a walk in one go meets, and holds nothing in between."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memguard.heap.walk import Link, SlicedWalk


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests' modules keep is left out."""
    monkeypatch.setattr("memguard.heap.roots.user_module_names", lambda: ())


class Shelf:
    """Something of the user's that can be referred to weakly."""

    def __init__(self, *things: object) -> None:
        self.things = list(things)


def after(calls: int) -> Callable[[], bool]:
    """Says that it is enough from a number of questions on."""
    asked = 0

    def is_enough() -> bool:
        nonlocal asked
        asked += 1
        return asked > calls

    return is_enough


def advance(walk: SlicedWalk, calls: int, **extra: object) -> list[tuple[Any, int]]:
    """One slice over some named objects; what was met, by value and position."""
    met: list[tuple[Any, int]] = []

    def visit(link: Link) -> None:
        if link.root[0] == "extra":
            met.append((link.value, link.path))

    walk.advance([], extra.items(), visit, after(calls))
    return met


def nested() -> Shelf:
    """A few hundred objects, five deep."""
    return Shelf(*({"a": [torch.ones(1), (i, [i])], "b": Shelf(Shelf(torch.ones(2)))} for i in range(40)))


def test_many_slices_meet_what_one_meets() -> None:
    """Each object once, tensors included."""
    shelf = nested()
    whole = SlicedWalk([])
    expected = {(id(value), number) for value, number in advance(whole, 1 << 30, shelf=shelf)}
    assert whole.complete
    parts = SlicedWalk([])
    met: list[tuple[int, int]] = []
    slices = 0
    while not parts.complete:
        met += [(id(value), number) for value, number in advance(parts, 4, shelf=shelf)]
        slices += 1
    assert slices > 10
    assert {id(shelf), *map(id, shelf.things)} <= {number for number, _ in met}
    assert expected == set(met)
    assert len(met) == len(set(met))


def test_nothing_is_held_between_two_slices() -> None:
    """What was met, and what is still to be entered, dies when its owner lets go."""
    shelf = nested()
    walk = SlicedWalk([])
    while len(advance(walk, 3, shelf=shelf)) == 0:
        pass
    last = weakref.ref(shelf.things[-1]["b"])
    shelf.things.clear()
    assert last() is None
    while not walk.complete:
        advance(walk, 50, shelf=shelf)


def test_what_changes_meanwhile_is_passed_over() -> None:
    """Entries that went away or moved do no harm, and those behind them are met."""
    table = {f"k{i}": [Shelf()] for i in range(60)}
    walk = SlicedWalk([])
    advance(walk, 8, table=table)
    for i in range(0, 60, 2):
        del table[f"k{i}"]
    met: list[Any] = []
    while not walk.complete:
        met += [value for value, _ in advance(walk, 8, table=table)]
    assert {id(lists[0]) for lists in list(table.values())[-10:]} <= {id(value) for value in met}


def test_a_watched_model_is_met_whole_and_first() -> None:
    """However deep its parts lie, they count as its own, and come before all else."""
    model = nn.Sequential(nn.Linear(1, 1))
    for _ in range(9):
        model = nn.Sequential(model)
    walk = SlicedWalk([model])
    met: list[tuple[Any, bool]] = []
    extra: list[tuple[str, object]] = [("model", model), ("other", Shelf())]
    walk.advance([], extra, lambda link: met.append((link.value, link.watched)), after(1 << 30))
    parts = [value for value, watched in met if watched]
    assert {id(value) for value in parts} == {id(module) for module in model.modules()}
    assert [watched for _, watched in met[: len(parts)]] == [True] * len(parts)


def test_it_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with more objects is not gone over to the end."""
    monkeypatch.setattr("memguard.heap.walk.MAX_OBJECTS", 50)
    walk = SlicedWalk([])
    assert len(advance(walk, 1 << 30, shelf=nested())) <= 51
    assert walk.complete


def test_what_a_function_that_is_over_had_names_for_is_met_by_those_around_it() -> None:
    """An object is entered from the outermost frame that names it: an inner one may be gone in the next slice."""
    kept = nested()
    walk, met = SlicedWalk([]), set()

    def visit(link: Link) -> None:
        met.add(id(link.value))

    def inner(shelf: Shelf) -> None:
        walk.advance([sys._getframe(), sys._getframe(1)], [], visit, after(12))

    inner(kept)
    while not walk.complete:
        walk.advance([sys._getframe()], [], visit, after(40))
    assert id(kept.things[-1]["b"]) in met


def test_a_frames_variables_are_found_again() -> None:
    """The same function, some lines later: its variables are where they were."""
    kept = nested()
    walk = SlicedWalk([])
    met: set[int] = set()
    while not walk.complete:
        walk.advance([sys._getframe()], [], lambda link: met.add(id(link.value)), after(40))
    assert {id(kept), id(kept.things[-1]["b"])} <= met

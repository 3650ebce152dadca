"""Elements are read past what a subclass of a container defines; nests of the user's are walked within bounds."""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator
from typing import Any

import torch

from memguard.evidence.peaks.locals import is_held_elsewhere
from memguard.heap.containers import MAX_ELEMENTS, all_of, tensors_in


def test_a_list_that_grows_while_it_is_walked_is_no_endless_one() -> None:
    """A profile function that keeps what it is told adds to its list with every step of ours."""
    calls: list[object] = [torch.ones(1)]
    before, most = sys.getprofile(), 200 * MAX_ELEMENTS  # so that a walk without a bound fails here, and ends
    sys.setprofile(lambda *told: calls.append(len(told)) if len(calls) < most else None)
    try:
        found = list(tensors_in(calls))
    finally:
        sys.setprofile(before)
    assert len(found) == 1
    assert len(calls) < 100 * MAX_ELEMENTS


def test_of_a_long_list_nobody_asks_who_holds_its_elements() -> None:
    """It counts as held elsewhere, before all of it was looked at."""
    rows = [[float(row)] for row in range(1_000_000)]
    assert is_held_elsewhere(rows, {"rows": rows})


class Loud(list[int]):
    """Must not be asked."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("ran code of the user's")


def test_every_element_of_a_container_is_read() -> None:
    """However long it is; of a dict its values, and nothing of what is no container."""
    many = range(200)
    assert all_of(Loud(many)) == all_of(collections.deque(many)) == all_of(tuple(many)) == list(many)
    assert all_of({str(number): number for number in many}) == all_of(collections.UserList(many)) == list(many)
    assert all_of(7) == []

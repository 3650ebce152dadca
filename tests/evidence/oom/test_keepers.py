"""What a variable that piles tensors up is seen to hold."""

from __future__ import annotations

import linecache
import sys

import torch

from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.oom.census import Census
from memguard.evidence.oom.holders import find_hoards
from memguard.evidence.oom.stack import Stack
from memguard.postmortem.scene import KeptTensors


def heaviest() -> KeptTensors:
    """The caller's variable that holds most."""
    stack = Stack([sys._getframe(1)])
    try:
        census = Census(lambda tensor: True, lambda address, nbytes: nbytes)
        return find_hoards(census, stack, HolderSearch(frames=stack.frames))[0]
    finally:
        stack.frames.clear()


def test_tensors_whose_graph_is_used_up_are_not_detached() -> None:
    """After the backward they weigh no more than themselves, and still carry their graphs."""
    kept = [torch.ones(64, requires_grad=True).exp() for _ in range(3)]
    for tensor in kept:
        tensor.sum().backward()  # type: ignore[no-untyped-call]
    hoard = heaviest()
    assert (hoard.tensors, hoard.graph, hoard.attached) == (3, False, True)
    kept = [tensor.detach() for tensor in kept]
    del tensor
    assert not heaviest().attached


def test_a_list_is_seen_to_be_filling_where_the_program_stands_in_its_loop() -> None:
    """Its place is the line that adds to it, not the one that failed."""
    kept = []
    for _ in range(4):
        kept.append(torch.ones(64))
        hoard = heaviest() if len(kept) == 4 else None
    assert hoard is not None
    assert hoard.filling
    assert "kept.append" in linecache.getline(__file__, hoard.place.line or 0)
    assert not heaviest().filling


class Meter:
    """Collects in a method of its own."""

    def __init__(self) -> None:
        self.rows: list[tuple[torch.Tensor, int]] = []

    def add(self, row: torch.Tensor) -> None:
        self.rows.append((row, 1))


def test_what_another_function_fills_has_that_functions_line() -> None:
    """An attribute is named by the statement that adds to it, not by the line that ran out of memory."""
    meter = Meter()
    for _ in range(4):
        meter.add(torch.ones(64))
    hoard = heaviest()
    assert (hoard.place.holder, hoard.place.function) == ("Meter.rows", "Meter.add")
    assert "self.rows.append" in linecache.getline(__file__, hoard.place.line or 0)

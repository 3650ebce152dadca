"""Why memory was given back at a point of a trace: by ``empty_cache``, or by an allocation that had failed at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memguard.allocator.snapshot import TraceEntry

TAKES = ("segment_alloc", "segment_map")
GIVES = ("segment_free", "segment_unmap")


@dataclass(frozen=True, slots=True)
class Causes:
    """Indices into a trace."""

    emptied: frozenset[int]
    """Events before which ``empty_cache`` was called; the trace's length if it was the last call."""
    retried: frozenset[int]
    """Allocations that gave memory back and then succeeded."""


def causes_of(trace: Sequence[TraceEntry]) -> Causes:
    """Who gave memory back, which the trace itself does not tell.

    An allocation and what it gives back have one stack. Where stacks are missing, the allocation can only have failed
    at first if it would have needed more than ever was reserved: all of that was possible.
    """
    emptied, retried = set(), set()
    gave: TraceEntry | None = None
    took = False
    reserved = reserved_then = 0
    peak = _reserved_peak(trace)
    for at, entry in enumerate(trace):
        action = entry.action
        if action in GIVES:
            if gave is None:
                reserved_then = reserved
            gave = entry
            reserved -= entry.size
        elif action in TAKES:
            took = True
            reserved += entry.size
        elif action in ("alloc", "oom", "free_requested"):
            if gave is not None:
                if action == "oom":
                    pass
                elif action == "alloc" and took and _one_call(gave, entry, reserved_then, peak):
                    retried.add(at)
                else:
                    emptied.add(at)
            if action != "free_requested" or not took:
                gave, took = None, False
    if gave is not None:
        emptied.add(len(trace))
    return Causes(frozenset(emptied), frozenset(retried))


def _one_call(gave: TraceEntry, allocated: TraceEntry, reserved: int, peak: int) -> bool:
    if gave.stack:
        return gave.stack == allocated.stack
    return reserved + allocated.size > peak


def _reserved_peak(trace: Sequence[TraceEntry]) -> int:
    """The most that was reserved, counted from the beginning."""
    reserved = peak = 0
    for entry in trace:
        if entry.action in TAKES:
            reserved += entry.size
            peak = max(peak, reserved)
        elif entry.action in GIVES:
            reserved -= entry.size
    return peak

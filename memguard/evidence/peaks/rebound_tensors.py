"""Finds in an allocation history the tensors whose replacement is made before they are freed.

The line that makes them may call an operator (``x = x * 0.9``), or a function that gives back what it made; the old one
may be kept by the name itself, or by an attribute that a later line sets.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from memguard.records.facts import Place
from memguard.source.stores import Rebinding, gives_back, own_keeper, rebinding_at

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Frame
    from memguard.allocator.timeline import AllocationTimeline, Block

ALIKE = 0.75
"""How near the sizes of the old and the new one are."""
AS_HIGH = 0.99
"""Of the highest level of some batches: the peaks of the others."""


class Rebound(NamedTuple):
    """A line of which two tensors are there at once."""

    place: Place
    """The statement that makes them; of what an attribute keeps, the one that sets it."""
    bytes: int
    is_kept: bool
    """Whether an attribute keeps the old one, and not the name itself."""


class _Pair(NamedTuple):
    """Two blocks of a line, as the old one goes."""

    line: Frame
    old: Block
    is_direct: bool
    """Whether the line itself made them, and no function that it calls."""
    is_only: bool
    """Whether there is no third."""
    goes_on: bool
    """Whether nothing else was allocated since the line made the new one."""
    at_peak: bool


def rebound(timeline: AllocationTimeline, *, min_bytes: int, much: int = 0) -> list[Rebound]:
    """Lines whose old tensor went after the same line had made one of its size, those with the most bytes first.

    Args:
        timeline: Some batches.
        min_bytes: Smallest tensor that counts.
        much: From that size on, what a line makes and drops by itself counts wherever the peak comes; all else counts
            where both are there at the peak.
    """
    statement = functools.cache(rebinding_at)
    found: dict[Frame, Rebound] = {}
    for pair in _pairs(timeline, min_bytes):
        about = statement(pair.line.filename, pair.line.line)
        told = None if about is None else _told(timeline, pair, about, much)
        if told is not None and (pair.line not in found or found[pair.line].bytes < told.bytes):
            found[pair.line] = told
    return sorted(found.values(), key=lambda each: -each.bytes)


def _told(timeline: AllocationTimeline, pair: _Pair, about: Rebinding, much: int) -> Rebound | None:
    line, nbytes, keeper = pair.line, pair.old.size, about.keeper
    together = pair.is_only and pair.at_peak
    if keeper is not None and together and _runs_to(timeline, pair, keeper):
        return Rebound(keeper, nbytes, is_kept=True)
    if pair.is_direct:
        if not (pair.goes_on and (nbytes >= much or pair.at_peak)):
            return None
        keeper = keeper or own_keeper(line.filename, line.line, about.name)
        if keeper is not None and is_there_at_peak(timeline, line):
            return Rebound(keeper, nbytes, is_kept=True)
    elif keeper is not None or not (together and pair.goes_on and about.doubles):
        return None
    place = Place(file=line.filename, line=line.line, function=line.name, holder=about.name, source=about.source)
    return Rebound(place, nbytes, is_kept=False)


def _pairs(timeline: AllocationTimeline, min_bytes: int) -> Iterator[_Pair]:
    """The blocks that go while a later run of their line has made another of that size."""
    is_given_back = functools.cache(gives_back)
    levels = timeline.levels()
    high = AS_HIGH * max(levels, default=0)
    alive: dict[Frame, list[Block]] = {}
    made_by: dict[Block, tuple[Frame, bool]] = {}
    for old, event in timeline.changes():
        if old.size < min_bytes:
            continue
        if event == old.made:
            lines = timeline.calling_lines(event)
            line = next((each for each in lines if not is_given_back(each.filename, each.line)), None)
            if line is not None:
                made_by[old] = line, line == lines[0]
                alive.setdefault(line, []).append(old)
            continue
        if old not in made_by:
            continue
        line, is_direct = made_by[old]
        others = alive[line]
        others.remove(old)
        new = others[-1] if others else old
        if new.made <= old.made or not ALIKE * old.size <= new.size <= old.size / ALIKE:
            continue
        if timeline.is_one_run(line, old.made, new.made):
            continue  # an intermediate of it
        at_peak = max(levels[new.made : event]) >= high
        goes_on = timeline.is_one_run(line, new.made, event)
        yield _Pair(line, old, is_direct, len(others) == 1, goes_on, at_peak)


def is_there_at_peak(timeline: AllocationTimeline, line: Frame) -> bool:
    """Whether at the highest level a block of a line is there that the same line makes anew only later."""
    levels = timeline.levels()
    high = AS_HIGH * max(levels, default=0)
    # Of the first batch's peak the history does not know what was there: the last one is as high.
    at = max((number for number, level in enumerate(levels) if level >= high), default=-1)
    mine = [block for block in timeline.blocks if timeline.calling_lines(block.made)[:1] == (line,)]
    there = [block for block in mine if block.is_alive(at)]
    if len(there) != 1:
        return False  # with two of them it is the line itself
    anew = next((block.made for block in mine if block.made > at), None)
    gone = there[0].freed
    return gone is None or (anew is not None and anew < gone)  # the history may end before the line comes again


def _runs_to(timeline: AllocationTimeline, pair: _Pair, keeper: Place) -> bool:
    """Whether a line between the two statements allocated last: then the keeper's let the old one go."""
    last = next(timeline.backwards(pair.old.freed or 0))
    return any(
        (frame.filename, frame.name) == (pair.line.filename, pair.line.name)
        and pair.line.line <= frame.line <= (keeper.line or 0)
        for frame in timeline.user_lines(last)
    )

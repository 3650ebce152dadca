"""What was alive over the time of a trace: at its peak and at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memguard.allocator.analysis.lines import EARLIER, Line, LineBytes, Lines, top_lines
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.snapshot import ACTIVE, Segment, Stack, TraceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was alive at one moment of a trace."""

    event: int
    """Index in the trace."""
    time_us: int | None
    """Since the trace began."""
    allocated_bytes: int
    """Requests rounded as the allocator does; unsplit tails of blocks are not known to a trace."""
    lines: tuple[LineBytes, ...]


class Allocation(NamedTuple):
    """One change of what tensors own."""

    event: int
    line: Line
    bytes: int
    """Negative for a free."""
    stack: Stack


def changes(
    segments: Sequence[Segment], trace: Sequence[TraceEntry], config: AllocatorConfig, lines: Lines
) -> tuple[list[Allocation], list[Allocation]]:
    """Every allocation and free of a trace, and what was alive when it began.

    Returns:
        What was alive at the beginning, each as an allocation at event -1; and the changes in order.
    """
    alive: dict[int, Allocation] = {}
    before: list[Allocation] = []
    result: list[Allocation] = []
    round_size = config.round_size
    for at, entry in enumerate(trace):
        if entry.action == "alloc" and entry.size > 0:
            change = Allocation(at, lines.of(entry.stack), round_size(entry.size), entry.stack)
            alive[entry.address] = change
            result.append(change)
        elif entry.action == "free_requested" and entry.size > 0:
            freed = alive.pop(entry.address, None)
            if freed is None:
                freed = Allocation(-1, EARLIER, round_size(entry.size), ())
                before.append(freed)
            result.append(Allocation(at, freed.line, -freed.bytes, freed.stack))
    for segment in segments:
        for block in segment.blocks:
            if block.state == ACTIVE and block.address not in alive:
                line = lines.of(block.stack) if block.stack else EARLIER
                before.append(Allocation(-1, line, block.size, block.stack))
    return before, result


def peak_of(before: Sequence[Allocation], after: Sequence[Allocation], trace: Sequence[TraceEntry], top: int) -> Moment:
    """The moment when most was alive."""
    total = peak = sum(change.bytes for change in before)
    event = -1
    for change in after:
        total += change.bytes
        if total > peak:
            peak, event = total, change.event
    return _moment(before, after, trace, event, top)


def end_of(before: Sequence[Allocation], after: Sequence[Allocation], trace: Sequence[TraceEntry], top: int) -> Moment:
    """The end of the trace."""
    return _moment(before, after, trace, len(trace) - 1, top)


def _moment(
    before: Sequence[Allocation], after: Sequence[Allocation], trace: Sequence[TraceEntry], event: int, top: int
) -> Moment:
    alive: Counter[tuple[Line, int]] = Counter((change.line, change.bytes) for change in before)
    for change in after:
        if change.event > event:
            break
        if change.bytes > 0:
            alive[change.line, change.bytes] += 1
        else:
            alive[change.line, -change.bytes] -= 1
    amounts = [key for key, count in alive.items() for _ in range(count)]
    first = trace[0].time_us if trace else None
    now = trace[event].time_us if event >= 0 else first
    return Moment(
        event=event,
        time_us=None if now is None or first is None else now - first,
        allocated_bytes=sum(nbytes for _, nbytes in amounts),
        lines=top_lines(amounts, top),
    )

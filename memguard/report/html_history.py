"""The history of a memory snapshot for the page: what was allocated by line, and the blocks at one moment. No torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from memguard.allocator.analysis.lines import BACKWARD, EARLIER, NATIVE, NO_STACK, Line, Lines
from memguard.allocator.analysis.timeline import Allocation, changes
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.snapshot import ACTIVE, INACTIVE, Block, Segment, Snapshot, Stack

_POINTS = 600
_LINES = 12
_KINDS = ("before the history", "forward and other lines", "backward", "optimizer step")


def snapshot_history(snapshot: Snapshot, device: int) -> dict[str, Any] | None:
    """What was allocated over the history of a device, at some 600 moments: of each stretch the one with the most.

    Returns:
        ``events``: numbers of the chosen events; ``times_us``: since the history began, where it tells; ``lines`` and
        ``kinds``: each with ``name`` ([file, line, function], or a text) and ``bytes`` at each event; ``peak_event``.
        None where no history was recorded.
    """
    trace = snapshot.trace_of(device)
    config = AllocatorConfig.parse(recorded_conf(snapshot.settings))
    before, after = changes(snapshot.segments_of(device), trace, config, Lines())
    if not after:
        return None
    sizes = np.array([change.bytes for change in after], dtype=np.int64)
    events = np.array([change.event for change in after], dtype=np.int64)
    totals = np.cumsum(sizes) + sum(change.bytes for change in before)
    width = max(1, len(after) // _POINTS)
    starts = range(0, len(after), width)
    chosen = np.array([at + int(np.argmax(totals[at : at + width])) for at in starts], dtype=np.int64)
    peak = int(np.argmax(totals))
    chosen = np.unique(np.append(chosen, peak))
    lines = _shares([change.line for change in after], sizes, chosen, [(c.line, c.bytes) for c in before], peak)
    kinds: dict[int, str] = {}
    of_kind = [_kind_of(change, kinds) for change in after]
    shares = _shares(of_kind, sizes, chosen, [(_KINDS[0], change.bytes) for change in before], peak)
    first = trace[0].time_us
    times = [trace[at].time_us for at in events[chosen].tolist()]
    known = [time for time in times if time is not None]
    return {
        "device": device,
        "events": events[chosen].tolist(),
        "times_us": [time - first for time in known] if first is not None and len(known) == len(times) else None,
        "totals": totals[chosen].tolist(),
        "peak_event": int(events[peak]),
        "lines": [{"name": list(line) if isinstance(line, Line) else line, "bytes": sums} for line, sums in lines],
        "kinds": [{"name": kind, "bytes": sums} for kind, sums in shares],
    }


def _kind_of(change: Allocation, known: dict[int, str]) -> str:
    if change.line == EARLIER:
        return _KINDS[0]
    kind = known.get(id(change.stack))
    if kind is None:
        in_optimizer = any("/torch/optim/" in frame.filename.replace("\\", "/") for frame in change.stack)
        backward = change.line in (BACKWARD, NATIVE, NO_STACK)
        kind = known[id(change.stack)] = _KINDS[3] if in_optimizer else _KINDS[2] if backward else _KINDS[1]
    return kind


def _shares(
    keys: Sequence[Any], sizes: Any, chosen: Any, before: Iterable[tuple[Any, int]], peak: int
) -> list[tuple[Any, list[int]]]:
    """Bytes by key at the chosen changes: the keys with most at the peak, largest first, then all others together."""
    numbers: dict[Any, int] = {}
    positions = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    begun = [0] * len(numbers)
    for key, nbytes in before:
        at = numbers.setdefault(key, len(numbers))
        begun += [0] * (len(numbers) - len(begun))
        begun[at] += nbytes
    at_peak = np.bincount(positions[: peak + 1], sizes[: peak + 1], len(numbers)) + np.array(begun)
    names = list(numbers)
    largest = np.argsort(-at_peak, kind="stable")[:_LINES].tolist()
    shown = [(names[at], (np.cumsum(np.where(positions == at, sizes, 0))[chosen] + begun[at])) for at in largest]
    rest = np.cumsum(sizes)[chosen] + sum(begun) - sum(values for _, values in shown)
    told = [(name, values.tolist()) for name, values in shown]
    return [*told, ("all other lines", rest.tolist())] if rest.any() else told


def moment_of(snapshot: Snapshot, device: int, event: int) -> Snapshot:
    """The snapshot as it was after an event of a device's history: its segments and blocks then.

    Segments that grew in place are drawn as they were at the end; what a block was rounded up by is not known.
    """
    trace, segments = snapshot.trace_of(device), snapshot.segments_of(device)
    round_size = AllocatorConfig.parse(recorded_conf(snapshot.settings)).round_size
    alive: dict[int, tuple[int, Stack]] = {}
    made: set[int] = set()
    for at, entry in enumerate(trace):
        if entry.action == "alloc":
            made.add(entry.address)
            if at <= event:
                alive[entry.address] = (round_size(entry.size), entry.stack)
        elif entry.action == "free_requested":
            if entry.address not in made and at > event:
                alive.setdefault(entry.address, (round_size(entry.size), entry.stack))
            elif at <= event:
                alive.pop(entry.address, None)
    for segment in segments:
        for block in segment.blocks:
            if block.state == ACTIVE and block.address not in made:
                alive.setdefault(block.address, (block.size, block.stack))
    there = {segment.address: segment for segment in segments}
    for entry in reversed(trace[event + 1 :]):
        if entry.action == "segment_alloc":
            there.pop(entry.address, None)
        elif entry.action == "segment_free" and entry.address not in there:
            pool = next((segment.pool for segment in segments), (0, 0))
            there[entry.address] = Segment(
                device, entry.address, entry.size, entry.stream, entry.size <= 2 << 20, False, pool, ()
            )
    addresses = sorted(alive)
    return snapshot._replace(
        segments=tuple(
            there[address]._replace(blocks=_blocks(there[address], addresses, alive)) for address in sorted(there)
        )
    )


def _blocks(segment: Segment, addresses: Sequence[int], alive: dict[int, tuple[int, Stack]]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    at, end = segment.address, segment.address + segment.size
    for address in islice(addresses, bisect_left(addresses, at), None):
        if address >= end:
            break
        size, stack = alive[address]
        if address > at:
            blocks.append(Block(at, address - at, 0, INACTIVE, ()))
        blocks.append(Block(address, min(size, end - address), size, ACTIVE, stack))
        at = address + blocks[-1].size
    if at < end:
        blocks.append(Block(at, end - at, 0, INACTIVE, ()))
    return tuple(blocks)

"""Capacity: what the allocator held, in which state, and what could still have been allocated from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memguard.allocator.analysis.lines import Lines
from memguard.allocator.blocks import DEFAULT_POOL, SMALL_BYTES
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.sizes import block_sizes, blocks_by_range
from memguard.allocator.replay.state import state_before
from memguard.allocator.snapshot import ACTIVE, INACTIVE, PENDING, Segment, TraceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The memory of one device's allocator when the snapshot was taken, in bytes."""

    reserved_bytes: int
    """Taken from the driver."""
    active_allocated_bytes: int
    """In blocks that tensors own."""
    active_pending_free_bytes: int
    """Freed, but another stream may still use it."""
    inactive_bytes: int
    """Free: ``releasable_bytes`` and ``split_bytes``."""
    requested_bytes: int
    """What the owners of the active blocks asked for; the rest of their blocks is rounding."""
    releasable_bytes: int
    """In segments without a block in use; ``empty_cache`` or an allocation in need gives them back."""
    split_bytes: int
    """Free beside blocks in use: can serve requests that fit a gap, and nobody else."""
    largest_free_block_bytes: int
    largest_free_small_bytes: int
    """The largest in the segments for requests of up to 1 MiB, which get nothing of the others."""
    fragmentation: float
    """Share of the reserved memory that is ``split_bytes``."""
    segments: int
    private_pool_bytes: int
    """Reserved by CUDA graphs and MemPools."""
    expandable: bool
    """Whether segments are expandable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryEvent:
    """An allocation that failed, and the memory there was for it."""

    event: int
    """Index in the trace."""
    size_bytes: int
    """What was needed."""
    file: str | None
    line: int | None
    function: str | None
    """Of the user's line that asked."""
    device_free_bytes: int | None
    """What the driver still had."""
    reserved_bytes: int
    active_bytes: int
    free_bytes: int
    """Free in the cache, in pieces."""
    largest_free_block_bytes: int
    """The largest piece that this request could have used: of its stream and pool."""
    fits_if_whole: bool
    """Whether the free pieces and what the driver had would do, were they in one place."""


def space_of(segments: Sequence[Segment]) -> Space:
    """The capacity of a device's allocator by state."""
    by_state = {ACTIVE: 0, PENDING: 0, INACTIVE: 0}
    requested = releasable = largest = largest_small = 0
    for segment in segments:
        in_use = False
        for block in segment.blocks:
            by_state[block.state] += block.size
            if block.state == INACTIVE:
                largest = max(largest, block.size)
                largest_small = max(largest_small, block.size) if segment.small else largest_small
            else:
                in_use = True
                requested += block.requested_size
        if not in_use:
            releasable += segment.size
    reserved = sum(segment.size for segment in segments)
    split = by_state[INACTIVE] - releasable if by_state[INACTIVE] > releasable else 0
    return Space(
        reserved_bytes=reserved,
        active_allocated_bytes=by_state[ACTIVE],
        active_pending_free_bytes=by_state[PENDING],
        inactive_bytes=by_state[INACTIVE],
        requested_bytes=requested,
        releasable_bytes=releasable,
        split_bytes=split,
        largest_free_block_bytes=largest,
        largest_free_small_bytes=largest_small,
        fragmentation=split / reserved if reserved else 0.0,
        segments=len(segments),
        private_pool_bytes=sum(segment.size for segment in segments if segment.pool != DEFAULT_POOL),
        expandable=any(segment.expandable for segment in segments),
    )


def last_out_of_memory(
    segments: Sequence[Segment], trace: Sequence[TraceEntry], config: AllocatorConfig, lines: Lines
) -> OutOfMemoryEvent | None:
    """The last allocation of a trace that failed; None if none did."""
    at = next((at for at in range(len(trace) - 1, -1, -1) if trace[at].action == "oom"), None)
    if at is None:
        return None
    entry = trace[at]
    small = entry.size <= SMALL_BYTES
    state = state_before(segments, trace, config, at)
    sizes, _ = block_sizes(state, trace[at:], config, {})
    free = largest = active = 0
    for held, inside in blocks_by_range(state):
        position = held.address
        for begin, size in [*[(block.address, sizes[block.address]) for block in inside], (held.end, 0)]:
            gap = begin - position
            free += gap
            active += size
            position = begin + size
            if held.small == small and held.stream == entry.stream:
                largest = max(largest, gap)
    line = lines.of(entry.stack)
    return OutOfMemoryEvent(
        event=at,
        size_bytes=entry.size,
        file=line.file,
        line=line.line,
        function=line.function,
        device_free_bytes=entry.device_free,
        reserved_bytes=sum(held.size for held in state.ranges),
        active_bytes=active,
        free_bytes=free,
        largest_free_block_bytes=largest,
        fits_if_whole=free + (entry.device_free or 0) >= entry.size,
    )

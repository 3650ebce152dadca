"""The allocator's state when a trace began, found by walking the trace backwards from the segments at its end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from memguard.allocator.blocks import DEFAULT_POOL, SMALL_SEGMENT_BYTES, PoolId
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.address_space import addresses_of_small_pages, reserved_addresses
from memguard.allocator.snapshot import INACTIVE, PENDING, Segment, TraceEntry

_UNNAMED_POOL: Final = 1 << 40
"""First number of private pools whose names are not known; the second is the stream, as a capture has its own."""


@dataclass(frozen=True, slots=True)
class Range:
    """Memory of one kind: a segment, or mapped pages of an expandable one."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pool: PoolId

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + self.size

    def like(self, other: Range) -> bool:
        """Whether two ranges that touch are one."""
        return (
            self.expandable
            and other.expandable
            and (self.stream, self.small, self.pool) == (other.stream, other.small, other.pool)
        )


@dataclass(slots=True)
class ActiveBlock:
    """A block in use, or waiting for another stream."""

    address: int
    requested_size: int
    size: int | None
    """None where only the request is known: the block was freed later, and is not among the segments at the end."""
    allocated: bool
    """Owned by a tensor; else freed already, and still waiting for another stream."""


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """Memory held and blocks in use at one moment; what lies between the blocks is free."""

    ranges: tuple[Range, ...]
    """By address, without overlap."""
    blocks: tuple[ActiveBlock, ...]
    """By address."""
    pools: tuple[PoolId, ...]
    """The pool of each event of the trace behind this moment."""
    reserved_addresses: dict[int, int]
    """Where the address space of the lowest range of each expandable segment begins, by the range's address."""


def state_before(
    segments: Sequence[Segment],
    trace: Sequence[TraceEntry],
    config: AllocatorConfig,
    index: int = 0,
    private: Collection[int] = (),
) -> AllocatorState:
    """The state before an event of a trace.

    Args:
        segments: The segments of the device when the trace ended.
        trace: The device's events, oldest first.
        config: The allocator's settings.
        index: The event; 0 for the state in which the trace began.
        private: Events that gave back memory of a private pool, where the trace does not tell the pools.
    """
    small_pages = addresses_of_small_pages(segments, trace, config.large_segment_bytes)
    walk = _Backwards(segments, small_pages)
    for at in range(len(trace) - 1, index - 1, -1):
        walk.undo(trace[at], private=at in private)
    state = walk.state()
    return replace(state, reserved_addresses=reserved_addresses(state, trace[index:], small_pages))


@final
class _Backwards:
    def __init__(self, segments: Sequence[Segment], small_pages: frozenset[int]) -> None:
        self._ranges: list[Range] = []
        self._blocks: dict[int, ActiveBlock] = {}
        self._pools: list[PoolId] = []
        self._small_pages = small_pages
        for segment in segments:
            self._add(
                Range(segment.address, segment.size, segment.stream, segment.small, segment.expandable, segment.pool)
            )
            for block in segment.blocks:
                if block.state != INACTIVE:
                    self._blocks[block.address] = ActiveBlock(
                        block.address, block.requested_size, block.size, block.state != PENDING
                    )

    def undo(self, entry: TraceEntry, *, private: bool) -> None:
        action, address = entry.action, entry.address
        pool = entry.pool
        if action == "alloc":
            self._blocks.pop(address, None)
            if pool is None:
                pool = self._pool_at(address)
        elif action == "free_completed":
            self._blocks[address] = ActiveBlock(address, entry.size, None, allocated=False)
        elif action == "free_requested":
            block = self._blocks.get(address)
            if block is None:  # freed and completed within one event, as the oldest traces tell it
                block = self._blocks[address] = ActiveBlock(address, entry.size, None, allocated=True)
            block.allocated = True
        elif action in ("segment_alloc", "segment_map"):
            if pool is None:
                pool = self._pool_at(address)
            self._take(address, address + entry.size)
        elif action in ("segment_free", "segment_unmap"):
            expandable = action == "segment_unmap"
            small = address in self._small_pages if expandable else entry.size == SMALL_SEGMENT_BYTES
            if pool is None and private:
                pool = (_UNNAMED_POOL, entry.stream)
            elif pool is None and expandable:
                pool = self._pool_near(address, entry.stream, small)
            pool = pool or DEFAULT_POOL
            self._add(Range(address, entry.size, entry.stream, small, expandable, pool))
        self._pools.append(pool or DEFAULT_POOL)

    def state(self) -> AllocatorState:
        blocks = tuple(self._blocks[address] for address in sorted(self._blocks))
        return AllocatorState(tuple(self._ranges), blocks, tuple(reversed(self._pools)), {})

    def _at(self, address: int) -> int:
        """Index of the range that holds an address, or -1."""
        at = bisect_right(self._ranges, address, key=lambda held: held.address) - 1
        return at if at >= 0 and address < self._ranges[at].end else -1

    def _pool_at(self, address: int) -> PoolId:
        at = self._at(address)
        return self._ranges[at].pool if at >= 0 else DEFAULT_POOL

    def _pool_near(self, address: int, stream: int, small: bool) -> PoolId:
        """The pool of the nearest pages of a stream and kind, which are of the same address space."""
        alike = [held for held in self._ranges if held.expandable and (held.stream, held.small) == (stream, small)]
        return min(alike, key=lambda held: abs(held.address - address)).pool if alike else DEFAULT_POOL

    def _add(self, new: Range) -> None:
        ranges = self._ranges
        at = bisect_right(ranges, new.address, key=lambda held: held.address)
        if at < len(ranges) and new.end == ranges[at].address and new.like(ranges[at]):
            new = replace(new, size=new.size + ranges.pop(at).size)
        if at > 0 and ranges[at - 1].end == new.address and ranges[at - 1].like(new):
            at -= 1
            new = replace(ranges[at], size=ranges.pop(at).size + new.size)
        ranges.insert(at, new)

    def _take(self, begin: int, end: int) -> None:
        at = self._at(begin)
        if at < 0:
            return
        held = self._ranges.pop(at)
        if end < held.end:
            self._ranges.insert(at, replace(held, address=end, size=held.end - end))
        if held.address < begin:
            self._ranges.insert(at, replace(held, size=begin - held.address))

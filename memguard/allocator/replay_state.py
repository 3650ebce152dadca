"""The allocator's state when a trace began, found by walking the trace backwards from the segments at its end."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, final

from memguard.allocator.blocks import DEFAULT_POOL, SMALL_BYTES, SMALL_SEGMENT_BYTES, PoolId
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.snapshot import ACTIVE, INACTIVE, PENDING, Segment, TraceEntry

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
    small_pages = _addresses_of_small_pages(segments, trace, config.large_segment_bytes)
    walk = _Backwards(segments, small_pages)
    for at in range(len(trace) - 1, index - 1, -1):
        walk.undo(trace[at], private=at in private)
    state = walk.state()
    return replace(state, reserved_addresses=_reserved_addresses(state, trace[index:], small_pages))


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


def _addresses_of_small_pages(
    segments: Sequence[Segment], trace: Sequence[TraceEntry], large_page_bytes: int
) -> frozenset[int]:
    """Where unmapped pages belonged to a small pool, which the event itself does not tell.

    A small pool has pages of 2 MiB, a large one of 20 MiB. The pages of one address space begin at multiples of their
    size behind each other, and an address space has room for the whole device, so that the next known one below an
    address is its own.
    """
    known: dict[int, list[tuple[int, bool]]] = {}
    for segment in segments:
        if segment.expandable:
            known.setdefault(segment.stream, []).append((segment.address, segment.small))
    unmapped = [entry for entry in trace if entry.action == "segment_unmap"]
    if not unmapped:
        return frozenset()
    for entry in trace:
        if entry.action == "segment_map":  # a small pool maps one page for a request
            known.setdefault(entry.stream, []).append((entry.address, entry.size == SMALL_SEGMENT_BYTES))
    for places in known.values():
        places.sort()
    small = set()
    for entry in unmapped:
        places = known.get(entry.stream, [])
        at = bisect_right(places, entry.address, key=lambda place: place[0])
        below = places[at - 1] if at else None
        above = places[at] if at < len(places) else None
        nearest = below or above
        misplaced = below is not None and (entry.address - below[0]) % large_page_bytes
        if entry.size % large_page_bytes or misplaced or (nearest is not None and nearest[1]):
            small.add(entry.address)
    return frozenset(small)


def _reserved_addresses(
    state: AllocatorState, trace: Sequence[TraceEntry], small_pages: frozenset[int]
) -> dict[int, int]:
    """Where the expandable segments of a state begin, which may be below their lowest mapped page.

    That shows when pages below it are mapped, before the last of its pages is unmapped and the segment ends.
    """
    lowest: dict[tuple[int, bool, PoolId], int] = {}
    mapped: Counter[tuple[int, bool, PoolId]] = Counter()
    for held in state.ranges:
        if held.expandable:
            key = (held.stream, held.small, held.pool)
            lowest.setdefault(key, held.address)
            mapped[key] += held.size
    begins = dict(lowest)
    for entry, pool in zip(trace, state.pools, strict=True):
        if entry.action == "segment_map":
            key = (entry.stream, entry.size == SMALL_SEGMENT_BYTES, pool)
            if mapped[key] > 0:
                begins[key] = min(begins[key], entry.address)
                mapped[key] += entry.size
        elif entry.action == "segment_unmap":
            mapped[entry.stream, entry.address in small_pages, pool] -= entry.size
    return {lowest[key]: begins[key] for key in lowest}


def address_space_bytes(state: AllocatorState, trace: Sequence[TraceEntry]) -> int | None:
    """What an expandable segment has at most: addresses up to where the next one begins. None with fewer than two."""
    begins = {(held.stream, held.small, held.pool): held.address for held in reversed(state.ranges) if held.expandable}
    for entry, pool in zip(trace, state.pools, strict=True):
        if entry.action == "segment_map":
            key = (entry.stream, entry.size == SMALL_SEGMENT_BYTES, pool)
            begins[key] = min(begins.get(key, entry.address), entry.address)
    ordered = sorted(begins.values())
    return min((after - before for before, after in pairwise(ordered)), default=None)


def blocks_with_sizes(
    state: AllocatorState, trace: Sequence[TraceEntry], config: AllocatorConfig, tails: dict[int, int]
) -> tuple[dict[int, int], frozenset[int]]:
    """The size of every block of a state by its address, and the addresses of those whose size is a guess.

    The trace tells what was asked, and a block of a large pool may be up to 1 MiB larger than that: an unsplit tail.
    Free blocks of a large pool are larger than 1 MiB, so a smaller gap behind a block is its tail. If the gap is
    larger, the tail shows in the address of the first later allocation there, which begins where the free block began.
    If there is none, no tail is the guess.

    Args:
        state: The state in which the trace begins.
        trace: The events from there on.
        config: The allocator's settings.
        tails: Tails known otherwise, by the address of their block.
    """
    sizes: dict[int, int] = {}
    uncertain: dict[int, int] = {}  # address of a block with an unknown tail -> where its known part ends
    for held, inside in blocks_by_range(state):
        for block, following in zip(inside, [*inside[1:], None], strict=False):
            end = following.address if following else held.end
            room = end - block.address
            size = min(block.size or config.round_size(max(block.requested_size, 1)), room)
            if block.size is None and not held.small and not held.expandable:
                unsplittable = config.max_split_bytes is not None and size >= config.max_split_bytes
                if room - size <= SMALL_BYTES or unsplittable:
                    size = room
                elif block.address in tails:
                    size += tails[block.address]
                else:
                    uncertain[block.address] = block.address + size
            sizes[block.address] = size
    found = _tails_seen(state, trace, uncertain)
    for address, tail in found.items():
        sizes[address] += tail
    return sizes, frozenset(uncertain.keys() - found.keys())


def blocks_by_range(state: AllocatorState) -> list[tuple[Range, tuple[ActiveBlock, ...]]]:
    """Each range with the blocks in it."""
    result = []
    blocks, at = state.blocks, 0
    for held in state.ranges:
        while at < len(blocks) and blocks[at].address < held.address:  # in memory that the file does not tell of
            at += 1
        begin = at
        while at < len(blocks) and blocks[at].address < held.end:
            at += 1
        result.append((held, blocks[begin:at]))
    return result


def segments_of_state(state: AllocatorState, sizes: dict[int, int]) -> list[dict[str, Any]]:
    """A state in the form of PyTorch's snapshots, the gaps between its blocks as free blocks.

    Args:
        state: The state.
        sizes: The size of each block, by address.
    """
    segments = []
    for held, inside in blocks_by_range(state):
        blocks: list[dict[str, Any]] = []
        at = held.address
        for block in inside:
            if at < block.address:
                blocks.append({"address": at, "size": block.address - at, "state": INACTIVE})
            size = sizes[block.address]
            blocks.append(
                {
                    "address": block.address,
                    "size": size,
                    "requested_size": block.requested_size,
                    "state": ACTIVE if block.allocated else PENDING,
                }
            )
            at = block.address + size
        if at < held.end:
            blocks.append({"address": at, "size": held.end - at, "state": INACTIVE})
        segments.append(
            {
                "address": held.address,
                "total_size": held.size,
                "stream": held.stream,
                "segment_type": "small" if held.small else "large",
                "segment_pool_id": held.pool,
                "is_expandable": held.expandable,
                "reserved_address": state.reserved_addresses.get(held.address, held.address),
                "blocks": blocks,
            }
        )
    return segments


def _tails_seen(state: AllocatorState, trace: Sequence[TraceEntry], uncertain: dict[int, int]) -> dict[int, int]:
    """Tails that later allocations show."""
    found: dict[int, int] = {}
    if not uncertain:
        return found
    active = [block.address for block in state.blocks]
    bounds = [held.address for held in state.ranges]
    open_ends = dict(uncertain)
    for entry in trace:
        if not open_ends:
            break
        if entry.action == "alloc":
            at = bisect_right(active, entry.address)
            before = active[at - 1] if at else None
            if before in open_ends:
                tail = entry.address - open_ends[before]
                same = bisect_right(bounds, before) == bisect_right(bounds, entry.address)
                if same and 0 <= tail <= SMALL_BYTES:
                    found[before] = tail
                if same:
                    del open_ends[before]
            if before != entry.address:
                active.insert(at, entry.address)
        elif entry.action == "free_completed":
            at = bisect_right(active, entry.address) - 1
            if at >= 0 and active[at] == entry.address:
                del active[at]
            open_ends.pop(entry.address, None)
    return found

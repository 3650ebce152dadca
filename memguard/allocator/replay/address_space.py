"""The address spaces of expandable segments in a trace, which shows only the pages that come and go."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from memguard.allocator.blocks import SMALL_SEGMENT_BYTES, PoolId
from memguard.allocator.snapshot import Segment, TraceEntry

if TYPE_CHECKING:
    from memguard.allocator.replay.state import AllocatorState


def addresses_of_small_pages(
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


def reserved_addresses(
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

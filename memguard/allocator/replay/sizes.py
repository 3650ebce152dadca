"""The sizes of the blocks in use when a trace began, and that moment in the form of PyTorch's snapshots."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from memguard.allocator.blocks import SMALL_BYTES
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.state import ActiveBlock, AllocatorState, Range
from memguard.allocator.snapshot import ACTIVE, INACTIVE, PENDING, TraceEntry


def block_sizes(
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
    """A state in the form of PyTorch's snapshots, the gaps between its blocks as free blocks."""
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

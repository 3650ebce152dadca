"""The allocator's state in PyTorch's snapshot format: written from blocks, and made into blocks again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from memguard.allocator.blocks import DEFAULT_POOL, Block, BlockPool, PoolId
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.expandable import ExpandableSegment, ExpandableSegments

ALLOCATED: Final = "active_allocated"
PENDING: Final = ("active_pending_free", "active_awaiting_free")
"""Freed, but other streams may still use it; the second name is that of older snapshots."""
INACTIVE: Final = "inactive"

_UNKNOWN_STREAM: Final = -1
"""A snapshot does not tell which stream a pending block waits for."""


def describe_segments(blocks: Iterable[Block], device: int) -> list[dict[str, Any]]:
    """The segments that these blocks form, in the order of their addresses.

    A run of mapped pages of an expandable segment counts as a segment of its own, as in PyTorch.
    """
    heads = (block for block in blocks if block.prev is None or not block.prev.mapped)
    return [_describe_segment(head, device) for head in sorted(heads, key=lambda block: block.ptr)]


def _describe_segment(head: Block, device: int) -> dict[str, Any]:
    members = [head]
    while (after := members[-1].next) is not None and after.mapped:
        members.append(after)
    active = [block for block in members if block.active]
    pool = head.pool
    return {
        "device": device,
        "address": head.ptr,
        "total_size": sum(block.size for block in members),
        "allocated_size": sum(block.size for block in members if block.allocated),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested_size for block in active),
        "stream": head.stream,
        "segment_type": "small" if pool.is_small else "large",
        "segment_pool_id": DEFAULT_POOL if pool.private is None else pool.private.id,
        "is_expandable": head.segment is not None,
        "frames": [],
        "blocks": [
            {
                "address": block.ptr,
                "size": block.size,
                "requested_size": block.requested_size,
                "state": ALLOCATED if block.allocated else PENDING[0] if block.active else INACTIVE,
                "frames": [],
            }
            for block in members
        ],
    }


def describe_settings(config: AllocatorConfig, conf: str) -> dict[str, Any]:
    """The settings under the names of a snapshot's ``allocator_settings``."""
    return {
        "PYTORCH_CUDA_ALLOC_CONF": conf,
        "max_split_size": -1 if config.max_split_bytes is None else config.max_split_bytes,
        "garbage_collection_threshold": config.garbage_collection_threshold,
        "expandable_segments": config.expandable_segments,
        "graph_capture_record_stream_reuse": config.graph_capture_record_stream_reuse,
        "roundup_power2_divisions": {str(1 << i): d for i, d in enumerate(config.roundup_power2_divisions)},
    }


def build_blocks(
    segments: Iterable[Mapping[str, Any]],
    pool_for: Callable[[PoolId, bool], BlockPool],
    expandable: ExpandableSegments,
) -> Iterator[list[Block]]:
    """The linked blocks of each segment.

    Args:
        segments: In the order of their addresses.
        pool_for: Gives the pool of a name, the small one if the second argument is true.
        expandable: Knows how many addresses an expandable segment has. A snapshot shows only its mapped pages, so its
            addresses are taken to begin at the lowest of them, or at the ``reserved_address`` that it may tell.
    """
    grown: dict[tuple[int, int], list[Block]] = {}
    for segment in segments:
        pool = pool_for(tuple(segment.get("segment_pool_id", DEFAULT_POOL)), segment["segment_type"] == "small")
        stream = segment["stream"]
        if not segment.get("is_expandable", False):
            yield _chain(_mapped_blocks(segment, stream, pool, None))
            continue
        key = (id(pool), stream)
        known = grown.get(key)
        if known is not None:
            range_ = known[0].segment
            if range_ is not None and segment["address"] + segment["total_size"] <= range_.ptr + range_.size:
                known += _gap(known[-1], segment["address"])
                known += _mapped_blocks(segment, stream, pool, range_)
                continue
            yield _chain(known + _gap(known[-1], None))
        begin = segment.get("reserved_address", segment["address"])
        nbytes = max(expandable.segment_bytes(pool), segment["address"] + segment["total_size"] - begin)
        range_ = ExpandableSegment(begin, nbytes, expandable.page_bytes(pool))
        unmapped = Block(stream, 0, begin, pool, range_)
        grown[key] = [*_gap(unmapped, segment["address"]), *_mapped_blocks(segment, stream, pool, range_)]
    for known in grown.values():
        yield _chain(known + _gap(known[-1], None))


def _mapped_blocks(
    segment: Mapping[str, Any], stream: int, pool: BlockPool, range_: ExpandableSegment | None
) -> list[Block]:
    blocks, address = [], int(segment["address"])
    for described in segment["blocks"]:
        block = Block(stream, described["size"], address, pool, range_)
        block.allocated = described["state"] == ALLOCATED
        block.active = block.allocated or described["state"] in PENDING
        if block.active:
            block.requested_size = described.get("requested_size", block.size)
            if not block.allocated:
                block.stream_uses = {_UNKNOWN_STREAM}
        blocks.append(block)
        address += block.size
    return blocks


def _gap(before: Block, end: int | None) -> list[Block]:
    """The address space without memory behind a block, up to an address or the end of the segment."""
    range_ = before.segment
    if range_ is None:
        return []
    begin = before.ptr + before.size
    size = (range_.ptr + range_.size if end is None else end) - begin
    if size <= 0:
        return []
    block = Block(before.stream, size, begin, before.pool, range_)
    block.mapped = False
    return [block]


def _chain(blocks: list[Block]) -> list[Block]:
    for before, after in pairwise(blocks):
        before.next, after.prev = after, before
    return blocks

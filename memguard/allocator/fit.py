"""Which free block serves a request, and whether the rest of it is kept apart."""

from __future__ import annotations

from bisect import bisect_left
from typing import final

from memguard.allocator.blocks import MIN_BLOCK_BYTES, SMALL_BYTES, Block, BlockPool
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.segments import UNLIMITED, Segments


@final
class Fit:
    """The search for a free block."""

    __slots__ = ("_expandable", "_max_rounding", "_max_split", "_segments")

    def __init__(self, config: AllocatorConfig, segments: Segments) -> None:
        self._segments = segments
        self._expandable = config.expandable_segments
        self._max_split = config.max_split_bytes or UNLIMITED
        self._max_rounding = config.max_non_split_rounding_bytes

    def take(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """The smallest free block that is large enough, out of its pool (C++: ``get_free_block``)."""
        if self._segments.limit is not None and self._segments.collects_garbage:  # without a limit one call less
            pool.get_free_blocks_call_count += 1
        free = pool.free[stream]
        at = bisect_left(free, (size,))
        if at == len(free):
            return None
        block = free[at][2]
        if block.segment is not None and self._expandable:
            # Prefers the block that wastes least of its segment, counting what could be mapped behind it.
            while at + 1 < len(free) and block.segment is not None and _room(free[at + 1][2]) < _room(block):
                at += 1
                block = free[at][2]
        while block.segment is not None and not self._expandable:
            at += 1
            if at == len(free):
                return None
            block = free[at][2]
        if block.size >= self._max_split and (size < self._max_split or block.size >= size + self._max_rounding):
            return None
        del free[at]
        return block

    def should_split(self, block: Block, size: int, remaining: int) -> bool:
        """Whether what is left of a block is worth keeping apart (C++: ``should_split``)."""
        pool = block.pool
        if pool.private is not None and pool.private.no_split:
            return False
        if pool.is_small or self._expandable:
            return remaining >= MIN_BLOCK_BYTES
        return size < self._max_split and remaining > SMALL_BYTES


def _room(block: Block) -> int:
    """A free block's size, with the address space behind it that could be mapped to it."""
    after = block.next
    return block.size if after is None or after.mapped else block.size + after.size

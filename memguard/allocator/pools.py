"""The pools of a device: the default ones, and private ones of CUDA graphs and of ``torch.cuda.MemPool``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import final

from memguard.allocator.blocks import DEFAULT_POOL, MIN_BLOCK_BYTES, SMALL_BYTES, Block, BlockPool, PoolId
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.segments import UNLIMITED, Segments
from memguard.allocator.statistics import DeviceStatistics, PoolStatistics


@final
class PrivatePool:
    """The pools of a CUDA graph or of a ``torch.cuda.MemPool`` (C++: ``PrivatePool``)."""

    __slots__ = ("id", "large", "no_split", "segment_count", "small", "use_count", "use_on_oom")

    def __init__(
        self, pool_id: PoolId, small: PoolStatistics, large: PoolStatistics, *, use_on_oom: bool, no_split: bool
    ) -> None:
        self.id = pool_id
        self.use_count = 1
        self.use_on_oom = use_on_oom
        """Other requests may take this pool's free blocks before they run out of memory."""
        self.no_split = no_split
        self.segment_count = 0
        """Segments and mappings not yet given back (C++: ``cudaMalloc_count``)."""
        self.small = BlockPool(is_small=True, statistics=small, private=self)
        self.large = BlockPool(is_small=False, statistics=large, private=self)


@final
class Pools:
    """All pools of a device.

    Args:
        statistics: Where each pool counts; private pools count with the default ones of their kind.
    """

    def __init__(self, statistics: DeviceStatistics) -> None:
        self.small = BlockPool(is_small=True, statistics=statistics.small_pool)
        self.large = BlockPool(is_small=False, statistics=statistics.large_pool)
        self._private: dict[PoolId, PrivatePool] = {}
        self._statistics = statistics
        self._next_number = 1

    def __iter__(self) -> Iterator[BlockPool]:
        yield self.small
        yield self.large
        for private in self._private.values():
            yield private.small
            yield private.large

    def get(self, pool_id: PoolId, is_small: bool) -> BlockPool:
        """The small or the large pool of a name.

        Raises:
            KeyError: There is no such pool, or no more.
        """
        if pool_id == DEFAULT_POOL:
            return self.small if is_small else self.large
        private = self._private[pool_id]
        return private.small if is_small else private.large

    def get_or_add(self, pool_id: PoolId, is_small: bool) -> BlockPool:
        """The same, made if a given state names it first."""
        if pool_id != DEFAULT_POOL and pool_id not in self._private:
            self._add(pool_id, use_on_oom=False, no_split=False)
        return self.get(pool_id, is_small)

    def create(self, *, use_on_oom: bool, no_split: bool) -> PoolId:
        """The name of a new private pool."""
        pool_id = (0, self._next_number)
        self._add(pool_id, use_on_oom=use_on_oom, no_split=no_split)
        return pool_id

    def _add(self, pool_id: PoolId, *, use_on_oom: bool, no_split: bool) -> None:
        stats = self._statistics
        self._private[pool_id] = PrivatePool(
            pool_id, stats.small_pool, stats.large_pool, use_on_oom=use_on_oom, no_split=no_split
        )
        self._next_number = max(self._next_number, pool_id[1] + 1)

    def release(self, pool_id: PoolId) -> None:
        """Lets a private pool go; it is forgotten once it holds no memory any more."""
        self._private[pool_id].use_count -= 1

    def released(self) -> list[PrivatePool]:
        """Private pools that nobody will allocate from again (C++: ``graph_pools_freeable``)."""
        return [private for private in self._private.values() if private.use_count == 0]

    def forget(self, private: PrivatePool) -> None:
        """Drops a released pool that holds no memory."""
        del self._private[private.id]

    def lenders(self, is_small: bool) -> Iterator[BlockPool]:
        """The pools that may serve others in need (C++: ``use_on_oom_pools``)."""
        for private in self._private.values():
            if private.use_on_oom and private.use_count > 0:
                yield private.small if is_small else private.large

    def free_blocks(self) -> Iterator[Block]:
        """The free blocks of all pools."""
        for pool in self:
            yield from pool.free_blocks()

    def private_free_bytes(self) -> int:
        """Bytes in free blocks of private pools, which an error's text counts as allocated."""
        return sum(block.size for block in self.free_blocks() if block.pool.private is not None)


# Which free block serves a request, and whether the rest of it is kept apart.


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

"""The pools of a device: the default ones, and private ones of CUDA graphs and of ``torch.cuda.MemPool``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from memguard.allocator.blocks import DEFAULT_POOL, Block, BlockPool, PoolId
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

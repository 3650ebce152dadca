"""What goes back to the driver when the cache is emptied."""

from __future__ import annotations

from typing import final

from memguard.allocator.blocks import DEFAULT_POOL, PoolId
from memguard.allocator.events import StreamEvents
from memguard.allocator.pools import Pools, PrivatePool
from memguard.allocator.segments import Segments
from memguard.allocator.statistics import DeviceStatistics


@final
class Release:
    """Gives free segments back."""

    def __init__(self, pools: Pools, segments: Segments, events: StreamEvents, statistics: DeviceStatistics) -> None:
        self._pools = pools
        self._segments = segments
        self._events = events
        self._statistics = statistics

    def segment(self, address: int) -> None:
        """Gives one free segment back.

        Raises:
            KeyError: No segment without a block in use begins at this address.
        """
        for block in self._pools.free_blocks():
            if block.ptr == address and block.segment is None and not block.is_split:
                self._segments.release_block(block)
                return
        raise KeyError(f"no free segment begins at address {address:#x}")

    def cached(self, pool_id: PoolId, *, capturing: bool) -> None:
        """Gives back every segment and page that can be (C++: ``release_cached_blocks``).

        Args:
            pool_id: A released private pool; the default pool stands for all there is.
            capturing: Whether a CUDA graph is being captured: then only private pools give anything.
        """
        everything = pool_id == DEFAULT_POOL
        if everything and not capturing:
            self._synchronize_and_free_events(None)
            self._segments.release_blocks(self._pools.large)
            self._segments.release_blocks(self._pools.small)
        for private in self._pools.released():
            if not (everything or private.id == pool_id):
                continue
            if not everything:
                self._synchronize_and_free_events(private)
            self._segments.release_blocks(private.small)
            self._segments.release_blocks(private.large)
            if private.segment_count == 0:
                self._pools.forget(private)

    def _synchronize_and_free_events(self, private: PrivatePool | None) -> None:
        self._statistics.num_sync_all_streams += 1
        self._events.finish_all(private)

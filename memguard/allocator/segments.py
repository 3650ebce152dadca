"""Segments: how the allocator takes memory from the driver, and when it gives it back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, final

from memguard.allocator.blocks import (
    MIN_LARGE_ALLOC_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    Block,
    BlockPool,
)
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.driver import Driver
from memguard.allocator.expandable import ExpandableSegments
from memguard.allocator.messages import OutOfMemory, rejected_text
from memguard.allocator.statistics import DeviceStatistics

OnEvent = Callable[[str, int, int, int], None]
"""Called with action, address, size and stream, in the words and order of PyTorch's memory trace."""

UNLIMITED: Final = 1 << 63


@final
class Segments:
    """The memory that the allocator holds: its growth, its limit, and its release."""

    def __init__(
        self, driver: Driver, config: AllocatorConfig, statistics: DeviceStatistics, on_event: OnEvent | None
    ) -> None:
        self.expandable = ExpandableSegments(driver, config, self._mapped, self._unmapped)
        self.limit: int | None = None
        """What the process may hold (C++: ``allowed_memory_maximum``); None without a limit."""
        self._driver = driver
        self._config = config
        self._statistics = statistics
        self.on_event = on_event
        """Called for segments that come, go, grow and shrink."""
        self._max_split = config.max_split_bytes or UNLIMITED
        self._total_allocated_memory = 0

    @property
    def collects_garbage(self) -> bool:
        """Whether old blocks are released first: the threshold does nothing without a limit."""
        return self.limit is not None and self._config.garbage_collection_threshold > 0

    def allocation_size(self, size: int) -> int:
        """What the driver is asked for (C++: ``get_allocation_size``): 2 MiB, 20 MiB, or the size itself.

        Args:
            size: A rounded request.
        """
        if size <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < MIN_LARGE_ALLOC_BYTES:
            return self._config.large_segment_bytes
        return (size + ROUND_LARGE_BYTES - 1) // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES

    def alloc_block(self, pool: BlockPool, stream: int, size: int, requested: int) -> Block | None:
        """A block of a new segment, or of an expandable one that grows (C++: ``alloc_block``); None if out of memory.

        The limit is held against the size of a whole new segment, also where an expandable one would grow by less.

        Raises:
            OutOfMemory: ``throw_on_cudamalloc_oom`` is set, and the driver could not have this much.
        """
        nbytes = self.allocation_size(size)
        if self.limit is not None and self._total_allocated_memory + nbytes > self.limit:
            return None
        if self._config.throw_on_cudamalloc_oom and self._total_allocated_memory + nbytes > self._driver.total_bytes:
            self._statistics.num_oom_rejections += 1
            raise OutOfMemory(rejected_text(requested), requested_bytes=requested, alloc_bytes=nbytes)
        if self._config.expandable_segments:
            return self.expandable.allocate(pool, stream, size)
        address = self._driver.malloc(nbytes)
        if address is None:
            return None
        self.count_segment(pool, nbytes)
        if self.on_event is not None:
            self.on_event("segment_alloc", address, nbytes, stream)
        return Block(stream, nbytes, address, pool, None)

    def release_block(self, block: Block) -> None:
        """Gives a whole free segment back to the driver (C++: ``release_block``)."""
        pool, nbytes = block.pool, block.size
        pool.remove(block)
        if self.on_event is not None:
            self.on_event("segment_free", block.ptr, nbytes, block.stream)
        self._driver.free(block.ptr, nbytes)
        self._shrink(pool, nbytes)
        self._statistics.all.segment.decrease(1)
        pool.statistics.segment.decrease(1)
        if nbytes >= self._max_split:
            self._statistics.oversize_segments.decrease(1)

    def release_blocks(self, pool: BlockPool) -> None:
        """Gives back every free segment of a pool, and every free page of its expandable ones (C++: the same name)."""
        to_unmap = []
        for block in list(pool.free_blocks()):
            if block.segment is not None:
                to_unmap.append(block)
            elif not block.is_split:
                self.release_block(block)
        for block in to_unmap:
            self.expandable.unmap(block)

    def release_oversize(self, pool: BlockPool, stream: int, size: int) -> bool:
        """Gives back unsplittable blocks until a request fits (C++: ``release_available_cached_blocks``).

        One that is large enough, or else the largest downwards; those stay released even if they do not suffice.
        """
        if self._config.max_split_bytes is None:
            return False
        needed = max(size, self._max_split)
        free = [entry for entry in pool.free[stream] if entry[2].segment is None and not entry[2].is_split]
        at = bisect_left(free, (needed,))
        if at < len(free):
            self.release_block(free[at][2])
            return True
        released = 0
        while released < needed and free and free[-1][0] >= self._max_split:
            block = free.pop()[2]
            released += block.size
            self.release_block(block)
        return released >= needed

    def collect_garbage(self, pool: BlockPool) -> None:
        """Gives back old whole segments while above the threshold (C++: ``garbage_collect_cached_blocks``).

        Age is counted in searches of the pool. Each sweep releases all that are at least as old as the average.

        Args:
            pool: The default large pool.
        """
        if self.limit is None:
            return
        excess = self._total_allocated_memory - int(self._config.garbage_collection_threshold * self.limit)
        now = pool.get_free_blocks_call_count
        whole = [block for block in pool.free_blocks() if not block.is_split]
        total_age, count = sum(now - block.gc_count_base for block in whole), len(whole)
        found = True
        while excess > 0 and found and count > 0:
            average_age = total_age / count
            old = [b for b in whole if b.segment is None and now - b.gc_count_base >= average_age]
            found = bool(old)
            for block in old:
                excess -= block.size
                total_age -= now - block.gc_count_base
                count -= 1
                whole.remove(block)
                self.release_block(block)

    def count_segment(self, pool: BlockPool, nbytes: int) -> None:
        """Counts a new segment."""
        self.grow(pool, nbytes)
        self._statistics.all.segment.increase(1)
        pool.statistics.segment.increase(1)
        if nbytes >= self._max_split:
            self._statistics.oversize_segments.increase(1)

    def grow(self, pool: BlockPool, nbytes: int) -> None:
        """Counts memory taken from the driver."""
        self._total_allocated_memory += nbytes
        self._statistics.num_device_alloc += 1
        self._statistics.all.reserved_bytes.increase(nbytes)
        pool.statistics.reserved_bytes.increase(nbytes)
        if pool.private is not None:
            pool.private.segment_count += 1
            for stat in self._statistics.reserved_by(pool.private.id, pool.is_small):
                stat.increase(nbytes)

    def _shrink(self, pool: BlockPool, nbytes: int) -> None:
        self._total_allocated_memory -= nbytes
        self._statistics.num_device_free += 1
        self._statistics.all.reserved_bytes.decrease(nbytes)
        pool.statistics.reserved_bytes.decrease(nbytes)
        if pool.private is not None:
            pool.private.segment_count -= 1
            for stat in self._statistics.reserved_by(pool.private.id, pool.is_small):
                stat.decrease(nbytes)

    def _mapped(self, pool: BlockPool, stream: int, address: int, nbytes: int) -> None:
        self.grow(pool, nbytes)
        if self.on_event is not None:
            self.on_event("segment_map", address, nbytes, stream)

    def _unmapped(self, pool: BlockPool, stream: int, address: int, nbytes: int) -> None:
        self._shrink(pool, nbytes)
        if self.on_event is not None:
            self.on_event("segment_unmap", address, nbytes, stream)

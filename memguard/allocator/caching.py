"""The CUDA caching allocator of PyTorch as a model: the same addresses, statistics and failures, without a GPU."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from typing import Final, final

from memguard.allocator.blocks import (
    DEFAULT_POOL,
    MIN_BLOCK_BYTES,
    MIN_LARGE_ALLOC_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    Block,
    BlockPool,
    PoolId,
    PrivatePool,
)
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.driver import Driver, RisingDriver
from memguard.allocator.expandable import ExpandableSegments
from memguard.allocator.messages import OutOfMemory, out_of_memory_text, rejected_text, too_large_text
from memguard.allocator.statistics import DeviceStatistics

OnEvent = Callable[[str, int, int, int], None]
"""Called with action, address, size and stream, in the words and order of PyTorch's memory trace."""

_EXBIBYTE: Final = 1 << 60
_UNLIMITED: Final = 1 << 63


@final
class CachingAllocator:
    """PyTorch's caching allocator for one device (C++: ``DeviceCachingAllocator``).

    Follows torch 2.14 and 2.15, where free blocks of equal size are taken at the lowest address. A stream is any
    integer; 0 is the default stream.

    Args:
        total_bytes: Capacity of the device.
        conf: The text of ``PYTORCH_CUDA_ALLOC_CONF``.
        torch_version: The PyTorch whose reading of ``conf`` to follow, like ``"2.9.1"``; None for the newest known.
        driver: What hands out memory and addresses; by default rising addresses in units of 2 MiB.
        context_bytes: Held by this process outside PyTorch; lowers what the default driver can give.
        reserved_by_others_bytes: Held by other processes; the same.
        pending: Events on recorded streams stay unfinished until ``synchronize``; else they finish at once.
        on_event: Hears of every ``alloc``, ``free_requested``, ``free_completed``, ``segment_alloc``,
            ``segment_free``, ``segment_map``, ``segment_unmap`` and ``oom`` (whose address is the free memory).
        device: Index of the device, for texts and snapshots.

    Raises:
        ValueError: ``conf`` or ``torch_version`` is not valid.
    """

    def __init__(
        self,
        total_bytes: int,
        conf: str = "",
        torch_version: str | None = None,
        *,
        driver: Driver | None = None,
        context_bytes: int = 0,
        reserved_by_others_bytes: int = 0,
        pending: bool = False,
        on_event: OnEvent | None = None,
        device: int = 0,
    ) -> None:
        self.config = AllocatorConfig.parse(conf, torch_version)
        self.conf = conf
        self.driver: Driver = driver or RisingDriver(
            total_bytes, context_bytes=context_bytes, others_bytes=reserved_by_others_bytes
        )
        self.total_bytes = total_bytes
        self.pending = pending
        self.device = device
        self._on_event = on_event
        self._statistics = stats = DeviceStatistics()
        self._small = BlockPool(is_small=True, statistics=stats.small_pool)
        self._large = BlockPool(is_small=False, statistics=stats.large_pool)
        self._private: dict[PoolId, PrivatePool] = {}
        self._next_pool = 1
        self._blocks: dict[int, Block] = {}  # handed out, by address
        self._total_allocated_memory = 0
        self._limit: int | None = None
        self._events: dict[int, deque[tuple[Block, int]]] = {}
        self._num_events = 0
        self._events_done = 0
        self._captures = 0
        self._deferred: list[Block] = []
        self._max_split = self.config.max_split_bytes or _UNLIMITED
        self._rounds_to_512 = not any(d > 1 for d in self.config.roundup_power2_divisions)
        self._expandable = ExpandableSegments(self.driver, self.config, self._segment_mapped, self._segment_unmapped)
        if self.config.per_process_memory_fraction < 1.0:
            self.set_memory_fraction(self.config.per_process_memory_fraction)

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> int:
        """The address of a block for ``nbytes``; 0 for zero bytes, which take no memory.

        Tries, in this order: a cached block; a new segment after the garbage collector has run; blocks of pools that
        may serve in need; a new segment after enough oversize blocks were released; one after all were released.

        Args:
            nbytes: Bytes asked for.
            stream: The stream whose work will use the block first.
            pool: A private pool from ``create_pool``.

        Raises:
            OutOfMemory: Every attempt failed.
        """
        if nbytes <= 0:
            if nbytes < 0:
                raise ValueError(f"an allocation cannot have a negative size, got {nbytes} bytes")
            return 0
        if self._events and not self._captures:
            self._process_events()
        size = (nbytes + 511) & ~511 if self._rounds_to_512 else self.config.round_size(nbytes)
        if pool is not DEFAULT_POOL:
            blocks = self._pool_of(pool, size, nbytes)
        else:
            blocks = self._small if size <= SMALL_BYTES else self._large

        block = self._get_free_block(blocks, stream, size)
        if block is None:
            block = self._get_new_block(blocks, stream, size, nbytes)
            blocks = block.pool

        remaining = block.size - size
        was_split = block.prev is not None or block.next is not None
        if remaining and self._should_split(block, size, remaining):
            rest, block = block, block.split(size)
            rest.gc_count_base = blocks.get_free_blocks_call_count
            insort(blocks.free[stream], (remaining, rest.ptr, rest))
            if block.segment is None:
                if was_split:
                    self._change_inactive_split(blocks, 0, -size)
                else:
                    self._change_inactive_split(blocks, 1, remaining)
        elif was_split and block.segment is None:
            self._change_inactive_split(blocks, -1, -block.size)

        block.allocated = block.active = True
        block.requested_size = nbytes
        size, address = block.size, block.ptr
        self._blocks[address] = block
        blocks.statistics.hand_out(size, nbytes)
        self._statistics.all.hand_out(size, nbytes)
        if size >= self._max_split:
            self._statistics.oversize_allocations.increase(1)
        if self._on_event is not None:
            self._on_event("alloc", address, nbytes, stream)
        return address

    def free(self, address: int) -> None:
        """Takes a block back; it can be handed out again at once, unless another stream was recorded to use it.

        Raises:
            KeyError: No block is handed out at this address.
        """
        if address == 0:
            return
        block = self._blocks.pop(address)
        block.allocated = False
        size = block.size
        block.pool.statistics.take_back(size)
        self._statistics.all.take_back(size)
        if self._on_event is not None:
            self._on_event("free_requested", address, block.requested_size, block.stream)
        if size >= self._max_split:
            self._statistics.oversize_allocations.decrease(1)
        if block.stream_uses is None:
            self._free_block(block)
        elif self._captures:
            self._deferred.append(block)
        else:
            self._insert_events(block)

    def _pool_of(self, pool_id: PoolId, size: int, nbytes: int) -> BlockPool:
        if pool_id == DEFAULT_POOL:
            return self._small if size <= SMALL_BYTES else self._large
        private = self._private[pool_id]
        return private.small if size <= SMALL_BYTES else private.large

    def _get_free_block(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """The smallest free block that is large enough, out of its pool (C++: ``get_free_block``)."""
        if self._limit is not None and self.config.garbage_collection_threshold > 0:
            pool.get_free_blocks_call_count += 1
        free = pool.free[stream]
        at = bisect_left(free, (size,))  # type: ignore[type-var]
        if at == len(free):
            return None
        block = free[at][2]
        if block.segment is not None:
            # The block that leaves least of its segment unused, memory still to be mapped included.
            while at + 1 < len(free):
                following = free[at + 1][2]
                if block.segment is None or _room(following) >= _room(block):
                    break
                at, block = at + 1, following
        if block.size >= self._max_split and (
            size < self._max_split or block.size >= size + self.config.max_non_split_rounding_bytes
        ):
            return None
        del free[at]
        return block

    def _should_split(self, block: Block, size: int, remaining: int) -> bool:
        """Whether what is left of a block is worth keeping apart (C++: ``should_split``)."""
        pool = block.pool
        if pool.private is not None and pool.private.no_split:
            return False
        if pool.is_small or self.config.expandable_segments:
            return remaining >= MIN_BLOCK_BYTES
        return size < self._max_split and remaining > SMALL_BYTES

    def _get_new_block(self, pool: BlockPool, stream: int, size: int, nbytes: int) -> Block:
        """A block for which the cache alone had no room; see ``malloc`` for the order of attempts."""
        if nbytes >= _EXBIBYTE:
            raise OutOfMemory(too_large_text(), requested_bytes=nbytes, alloc_bytes=nbytes)
        alloc_bytes = self._allocation_size(size)
        if self._limit is not None and self.config.garbage_collection_threshold > 0:
            self._garbage_collect_cached_blocks()
        block = self._alloc_block(pool, stream, size, alloc_bytes, nbytes)
        if block is None and pool.private is None:
            block = self._borrow(stream, size)
        if block is None and self._release_available_cached_blocks(pool, stream, size):
            block = self._alloc_block(pool, stream, size, alloc_bytes, nbytes)
        if block is None and not self._captures:
            self._release_cached_blocks(DEFAULT_POOL)
            self._statistics.num_alloc_retries += 1
            block = self._alloc_block(pool, stream, size, alloc_bytes, nbytes)
        if block is None:
            self._statistics.num_ooms += 1
            if self._on_event is not None:
                self._on_event("oom", self.driver.free_bytes, size, stream)
            raise OutOfMemory(
                self._out_of_memory_text(pool, size, alloc_bytes), requested_bytes=nbytes, alloc_bytes=alloc_bytes
            )
        return block

    def _allocation_size(self, size: int) -> int:
        """What the driver is asked for (C++: ``get_allocation_size``)."""
        if size <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < MIN_LARGE_ALLOC_BYTES:
            return self.config.large_segment_bytes
        return (size + ROUND_LARGE_BYTES - 1) // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES

    def _alloc_block(self, pool: BlockPool, stream: int, size: int, alloc_bytes: int, nbytes: int) -> Block | None:
        """A block of a new segment, or of an expandable one that grows (C++: ``alloc_block``)."""
        if self._limit is not None and self._total_allocated_memory + alloc_bytes > self._limit:
            return None
        if self.config.throw_on_cudamalloc_oom and self._total_allocated_memory + alloc_bytes > self.total_bytes:
            self._statistics.num_oom_rejections += 1
            raise OutOfMemory(rejected_text(alloc_bytes), requested_bytes=nbytes, alloc_bytes=alloc_bytes)
        if self.config.expandable_segments:
            return self._expandable.allocate(pool, stream, size)
        address = self.driver.malloc(alloc_bytes)
        if address is None:
            return None
        self._grow(pool, alloc_bytes)
        for stats in (self._statistics.all, pool.statistics):
            stats.segment.increase(1)
        if alloc_bytes >= self._max_split:
            self._statistics.oversize_segments.increase(1)
        if self._on_event is not None:
            self._on_event("segment_alloc", address, alloc_bytes, stream)
        return Block(stream, alloc_bytes, address, pool, None)

    def _borrow(self, stream: int, size: int) -> Block | None:
        """A free block of a pool that may serve in need (C++: ``try_mempool_fallback``)."""
        for private in self._private.values():
            if private.use_on_oom:
                block = self._get_free_block(private.small if size <= SMALL_BYTES else private.large, stream, size)
                if block is not None:
                    return block
        return None

    def _free_block(self, block: Block) -> None:
        """Puts a block that nobody uses among the free ones, joined with its free neighbours (C++: ``free_block``)."""
        pool, size, requested = block.pool, block.size, block.requested_size
        if self._on_event is not None:
            self._on_event("free_completed", block.ptr, requested, block.stream)
        block.active = False
        count = nbytes = 0
        for other in (block.prev, block.next):
            if other is not None and not other.active and other.mapped:
                pool.remove(other)
                nbytes -= block.absorb(other)
                count -= 1
        block.gc_count_base = pool.get_free_blocks_call_count
        insort(pool.free[block.stream], (block.size, block.ptr, block))
        if block.segment is None:
            if block.prev is not None or block.next is not None:
                count += 1
                nbytes += block.size
            if count or nbytes:
                self._change_inactive_split(pool, count, nbytes)
        pool.statistics.settle(size, requested)
        self._statistics.all.settle(size, requested)

    def _change_inactive_split(self, pool: BlockPool, blocks: int, nbytes: int) -> None:
        pool.statistics.change_inactive_split(blocks, nbytes)
        self._statistics.all.change_inactive_split(blocks, nbytes)

    # ---- other streams

    def record_stream(self, address: int, stream: int) -> None:
        """Notes that another stream uses a block: once freed, it waits for what that stream has been given to do.

        Raises:
            KeyError: No block is handed out at this address.
        """
        block = self._blocks[address]
        if stream != block.stream:
            block.stream_uses = (block.stream_uses or set()) | {stream}

    def synchronize(self) -> None:
        """Waits for all streams, as ``torch.cuda.synchronize``: what ``pending`` held back is free at the next malloc."""
        self._events_done = self._num_events

    def complete_events(self, address: int) -> None:
        """Ends the wait of one freed block now; how a replay says what a trace calls ``free_completed``.

        Raises:
            KeyError: No freed block waits at this address.
        """
        waiting = [block for block in self._waiting() if block.ptr == address]
        if not waiting:
            raise KeyError(address)
        block = waiting[0]
        for stream, events in list(self._events.items()):
            self._events[stream] = events = deque(event for event in events if event[0] is not block)
            if not events:
                del self._events[stream]
        self._deferred = [other for other in self._deferred if other is not block]
        block.stream_uses, block.event_count = None, 0
        self._free_block(block)

    def _waiting(self) -> list[Block]:
        """Blocks that no tensor owns and other streams may still use."""
        blocks = {block.ptr: block for events in self._events.values() for block, _ in events}
        return [*blocks.values(), *self._deferred]

    def _insert_events(self, block: Block) -> None:
        """Records an event on every stream that uses a block (C++: ``insert_events``)."""
        for stream in sorted(block.stream_uses or ()):
            self._num_events += 1
            block.event_count += 1
            self._events.setdefault(stream, deque()).append((block, self._num_events))
        block.stream_uses = None

    def _process_events(self) -> None:
        """Frees the blocks whose events are done, stream by stream in order (C++: ``process_events``)."""
        done = self._events_done if self.pending else self._num_events
        for stream in list(self._events):
            events = self._events[stream]
            while events and events[0][1] <= done:
                self._finish_event(events.popleft()[0])
            if not events:
                del self._events[stream]

    def _finish_event(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self._free_block(block)

    def _synchronize_and_free_events(self, private: PrivatePool | None) -> None:
        """Waits for the events of one pool, or of all (C++: ``synchronize_and_free_events``)."""
        self._statistics.num_sync_all_streams += 1
        for stream, events in list(self._events.items()):
            kept: deque[tuple[Block, int]] = deque()
            for block, number in events:
                if private is None or block.pool.private is private:
                    self._finish_event(block)
                else:
                    kept.append((block, number))
            if kept:
                self._events[stream] = kept
            else:
                del self._events[stream]

    # ---- giving memory back

    def empty_cache(self, pool: PoolId = DEFAULT_POOL) -> None:
        """Gives back every segment without a block in use, as ``torch.cuda.empty_cache``.

        Args:
            pool: Only the segments of this released private pool.
        """
        self._release_cached_blocks(pool)

    def _garbage_collect_cached_blocks(self) -> None:
        """Releases old whole blocks when the limit is near (C++: ``garbage_collect_cached_blocks``)."""
        assert self._limit is not None
        threshold = int(self.config.garbage_collection_threshold * self._limit)
        if self._total_allocated_memory <= threshold:
            return
        target = self._total_allocated_memory - threshold
        calls = self._large.get_free_blocks_call_count
        candidates = [block for block in self._large.free_blocks() if not block.is_split]
        count = len(candidates)
        total_age = float(sum(calls - block.gc_count_base for block in candidates))
        reclaimed, freed = 0, True
        while reclaimed < target and freed and count > 0:
            freed = False
            threshold_age = total_age / count
            kept = []
            for block in candidates:
                age = calls - block.gc_count_base
                if block.segment is None and age >= threshold_age:
                    freed = True
                    reclaimed += block.size
                    total_age -= age
                    count -= 1
                    self._release_block(block)
                else:
                    kept.append(block)
            candidates = kept

    def _release_available_cached_blocks(self, pool: BlockPool, stream: int, size: int) -> bool:
        """Releases oversize blocks of this stream until a request fits (C++: ``release_available_cached_blocks``)."""
        if self.config.max_split_bytes is None:
            return False
        needed = max(size, self._max_split)
        free = pool.free[stream]
        at = bisect_left(free, (needed,))  # type: ignore[type-var]
        if at < len(free) and free[at][2].segment is None:
            self._release_block(free[at][2])
            return True
        if at < len(free):
            return False
        released = 0
        while released < needed and free and free[-1][0] >= self._max_split:
            block = free[-1][2]
            if block.segment is not None:
                break
            released += block.size
            self._release_block(block)
        return released >= needed

    def _release_cached_blocks(self, pool_id: PoolId) -> None:
        """Releases every block that can be (C++: ``release_cached_blocks``)."""
        everything = pool_id == DEFAULT_POOL
        if everything and not self._captures:
            self._synchronize_and_free_events(None)
            self._release_blocks(self._large)
            self._release_blocks(self._small)
        for private in list(self._private.values()):
            if private.use_count > 0 or not (everything or private.id == pool_id):
                continue
            if not everything:
                self._synchronize_and_free_events(private)
            self._release_blocks(private.small)
            self._release_blocks(private.large)
            if private.segment_count == 0:
                del self._private[private.id]

    def _release_blocks(self, pool: BlockPool) -> None:
        to_unmap = []
        for block in list(pool.free_blocks()):
            if block.segment is not None:
                to_unmap.append(block)
            elif not block.is_split:
                self._release_block(block)
        for block in to_unmap:
            self._expandable.unmap(block)

    def _release_block(self, block: Block) -> None:
        """Gives a segment back to the driver (C++: ``release_block``)."""
        pool = block.pool
        pool.remove(block)
        if self._on_event is not None:
            self._on_event("segment_free", block.ptr, block.size, block.stream)
        self.driver.free(block.ptr, block.size)
        self._shrink(pool, block.size)
        for stats in (self._statistics.all, pool.statistics):
            stats.segment.decrease(1)
        if block.size >= self._max_split:
            self._statistics.oversize_segments.decrease(1)

    def _grow(self, pool: BlockPool, nbytes: int) -> None:
        self._total_allocated_memory += nbytes
        self._statistics.num_device_alloc += 1
        self._statistics.all.reserved_bytes.increase(nbytes)
        pool.statistics.reserved_bytes.increase(nbytes)
        if pool.private is not None:
            pool.private.segment_count += 1

    def _shrink(self, pool: BlockPool, nbytes: int) -> None:
        self._total_allocated_memory -= nbytes
        self._statistics.num_device_free += 1
        self._statistics.all.reserved_bytes.decrease(nbytes)
        pool.statistics.reserved_bytes.decrease(nbytes)
        if pool.private is not None:
            pool.private.segment_count -= 1

    def _segment_mapped(self, pool: BlockPool, stream: int, address: int, nbytes: int) -> None:
        self._grow(pool, nbytes)
        if self._on_event is not None:
            self._on_event("segment_map", address, nbytes, stream)

    def _segment_unmapped(self, pool: BlockPool, stream: int, address: int, nbytes: int) -> None:
        self._shrink(pool, nbytes)
        if self._on_event is not None:
            self._on_event("segment_unmap", address, nbytes, stream)

    # ---- limits and private pools

    def set_memory_fraction(self, fraction: float) -> None:
        """Limits this process to a share of the device, as ``torch.cuda.set_per_process_memory_fraction``; 1 lifts it.

        Raises:
            ValueError: The fraction is not from 0 to 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"a memory fraction is from 0.0 to 1.0, got {fraction}")
        self._limit = int(fraction * self.total_bytes) if fraction < 1.0 else None

    def create_pool(self, *, use_on_oom: bool = False, no_split: bool = False) -> PoolId:
        """The name of a new private pool, as a CUDA graph or ``torch.cuda.MemPool`` has one.

        Args:
            use_on_oom: Other requests may take its free blocks before they run out of memory.
            no_split: Its blocks are handed out whole.
        """
        pool_id = (0, self._next_pool)
        self._next_pool += 1
        stats = self._statistics
        self._private[pool_id] = PrivatePool(
            pool_id, stats.small_pool, stats.large_pool, use_on_oom=use_on_oom, no_split=no_split
        )
        return pool_id

    def release_pool(self, pool: PoolId) -> None:
        """Lets a private pool go: its segments are given back with the cache, once no block of them is in use."""
        self._private[pool].use_count -= 1

    def begin_capture(self) -> None:
        """Starts a CUDA graph's capture: until its end nothing cached is released and no event is looked at."""
        self._captures += 1

    def end_capture(self) -> None:
        """Ends a capture; blocks freed in it that other streams use begin to wait for them."""
        self._captures -= 1
        if not self._captures:
            deferred, self._deferred = self._deferred, []
            for block in deferred:
                self._insert_events(block)

    # ---- what it tells

    def stats(self) -> dict[str, int]:
        """All statistics under the keys of ``torch.cuda.memory_stats``."""
        flat = self._statistics.flat()
        flat["max_split_size"] = -1 if self.config.max_split_bytes is None else self._max_split
        return flat

    def reset_peak_stats(self) -> None:
        """Begins every peak anew, as ``torch.cuda.reset_peak_memory_stats``."""
        self._statistics.reset_peak()

    def reset_accumulated_stats(self) -> None:
        """Counts what accumulates from zero, as ``torch.cuda.reset_accumulated_memory_stats``."""
        self._statistics.reset_accumulated()

    @property
    def allocated_bytes(self) -> int:
        """``torch.cuda.memory_allocated()``, without the cost of ``stats``; likewise the three below."""
        return self._statistics.all.allocated_bytes.current

    @property
    def reserved_bytes(self) -> int:
        """``torch.cuda.memory_reserved()``."""
        return self._statistics.all.reserved_bytes.current

    @property
    def allocated_peak_bytes(self) -> int:
        """``torch.cuda.max_memory_allocated()``."""
        return self._statistics.all.allocated_bytes.peak

    @property
    def reserved_peak_bytes(self) -> int:
        """``torch.cuda.max_memory_reserved()``."""
        return self._statistics.all.reserved_bytes.peak

    def _out_of_memory_text(self, pool: BlockPool, size: int, alloc_bytes: int) -> str:
        stats, driver = self._statistics.all, self.driver
        expandable = self.config.expandable_segments
        too_long = expandable and size > self._expandable.segment_bytes(pool)
        return out_of_memory_text(
            alloc_bytes=alloc_bytes,
            device=self.device,
            total_bytes=self.total_bytes,
            free_bytes=driver.free_bytes,
            process_bytes=driver.process_bytes,
            others_bytes=self.total_bytes - driver.process_bytes - driver.free_bytes,
            allowed_bytes=self._limit,
            allocated_bytes=stats.allocated_bytes.current,
            reserved_bytes=stats.reserved_bytes.current,
            private_free_bytes=sum(
                block.size
                for private in self._private.values()
                for free in (private.small, private.large)
                for block in free.free_blocks()
            ),
            reserve_bytes=self.config.reserve_bytes(self.total_bytes) if too_long else None,
        )


def _room(block: Block) -> int:
    """A free block's size, with the address space behind it that could be mapped to it."""
    after = block.next
    return block.size if after is None or after.mapped else block.size + after.size

"""The CUDA caching allocator of PyTorch as a model: the same addresses, statistics and failures, without a GPU.

One long class on purpose: every method changes the same pools and counters, as in the allocator that it mirrors.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, final

from memguard.allocator.blocks import DEFAULT_POOL, SMALL_BYTES, Block, BlockPool, PoolId
from memguard.allocator.config import AllocatorConfig, parse_version
from memguard.allocator.driver import Driver, RisingDriver
from memguard.allocator.events import StreamEvents
from memguard.allocator.messages import (
    EXPANDABLE_ADVICE,
    FRAGMENTATION_ADVICE,
    OutOfMemory,
    out_of_memory_text,
    reserve_advice,
    too_large_text,
)
from memguard.allocator.pools import Fit, Pools
from memguard.allocator.release import Release
from memguard.allocator.segments import UNLIMITED, OnEvent, Segments
from memguard.allocator.state import build_blocks, describe_segments, describe_settings
from memguard.allocator.statistics import DeviceStatistics

_EXBIBYTE: Final = 1 << 60


@final
class CachingAllocator:
    """PyTorch's caching allocator for one device (C++: ``DeviceCachingAllocator``).

    Follows torch 2.14 and 2.15, where free blocks of equal size are taken at the lowest address. A stream is any
    integer; 0 is the default stream.

    Args:
        total_bytes: Capacity of the device.
        conf: The text of ``PYTORCH_CUDA_ALLOC_CONF``.
        torch_version: The version of PyTorch that reads ``conf``, like ``"2.9.1"``; None for the newest known.
        driver: What hands out memory and addresses; by default rising addresses in units of 2 MiB.
        context_bytes: Held by this process outside PyTorch; lowers what the default driver can give.
        reserved_by_others_bytes: Held by other processes; the same.
        pending: Events on recorded streams stay unfinished until ``synchronize``; else they finish immediately.
        on_event: Called for every ``alloc``, ``free_requested``, ``free_completed``, ``segment_alloc``,
            ``segment_free``, ``segment_map``, ``segment_unmap`` and ``oom`` (with the free memory as its address).
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
        self._version = parse_version(torch_version)
        self.driver: Driver = driver or RisingDriver(
            total_bytes, context_bytes=context_bytes, others_bytes=reserved_by_others_bytes
        )
        self.total_bytes = total_bytes
        self.device = device
        self._on_event = on_event
        self._statistics = stats = DeviceStatistics()
        self._all = stats.all
        self._pools = Pools(stats)
        self._blocks: dict[int, Block] = {}  # handed out, by address
        self._segments = Segments(self.driver, self.config, stats, on_event)
        self._events = StreamEvents(self._free_block, pending=pending)
        self._fit = Fit(self.config, self._segments)
        self._release = Release(self._pools, self._segments, self._events, stats)
        self._captures = 0
        self._max_split = self.config.max_split_bytes or UNLIMITED
        self._rounds_to_512 = not any(divisions > 1 for divisions in self.config.roundup_power2_divisions)
        if self.config.per_process_memory_fraction < 1.0:
            self.set_memory_fraction(self.config.per_process_memory_fraction)

    def listen(self, on_event: OnEvent | None) -> None:
        """Calls another function for the events that follow; None ends it. See the class."""
        self._on_event = on_event
        self._segments.on_event = on_event

    @classmethod
    def from_segments(
        cls,
        segments: Iterable[Mapping[str, Any]],
        total_bytes: int,
        conf: str = "",
        torch_version: str | None = None,
        *,
        driver: Driver | None = None,
        **options: Any,
    ) -> CachingAllocator:
        """An allocator in a given state, as if its statistics had been reset just now.

        Args:
            segments: What ``snapshot()["segments"]`` gives, here or in PyTorch. Of a segment are read ``address``,
                ``total_size``, ``stream``, ``segment_type`` and ``blocks``, and where they are known
                ``segment_pool_id`` and ``is_expandable``; of a block ``size``, ``state``, ``requested_size``.
            total_bytes: See the class; also for ``conf``, ``torch_version`` and the options.
            conf: May differ from the one the segments grew under.
            torch_version: See the class.
            driver: A driver that holds the segments' memory already; by default one that takes it over.
            **options: See the class.
        """
        allocator = cls(total_bytes, conf, torch_version, driver=driver, **options)
        ordered = sorted(segments, key=lambda segment: int(segment["address"]))
        if driver is None and isinstance(allocator.driver, RisingDriver):
            for segment in ordered:
                allocator.driver.adopt(segment["address"], segment["total_size"])
        for blocks in build_blocks(ordered, allocator._pools.get_or_add, allocator._segments.expandable):
            allocator._adopt(blocks)
        allocator.reset_accumulated_stats()
        allocator.reset_peak_stats()
        return allocator

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> int:
        """The address of a block for ``nbytes``; 0 for zero bytes, which take no memory.

        Tries, in this order: a cached block; a new segment after the garbage collector has run; blocks of pools that
        may serve in need; a new segment after enough oversize blocks were released; one after all were released.

        Args:
            nbytes: Bytes asked for.
            stream: The stream that will use the block first.
            pool: A private pool from ``create_pool``.

        Raises:
            OutOfMemory: Every attempt failed.
            KeyError: There is no such pool.
        """
        if not 0 < nbytes < _EXBIBYTE:
            return self._refuse(nbytes)
        if self._events.queues and not self._captures:
            self._events.process()
        size = (nbytes + 511) & ~511 if self._rounds_to_512 else self.config.round_size(nbytes)
        pools = self._pools
        if pool is DEFAULT_POOL:  # written out, for every allocation passes here
            blocks = pools.small if size <= SMALL_BYTES else pools.large
        else:
            blocks = pools.get(pool, size <= SMALL_BYTES)

        block = self._fit.take(blocks, stream, size)
        if block is None:
            block = self._get_new_block(blocks, stream, size, nbytes)
            blocks = block.pool

        remaining = block.size - size
        was_split = block.prev is not None or block.next is not None
        if remaining and self._fit.should_split(block, size, remaining):
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
        self._all.hand_out(size, nbytes)
        if size >= self._max_split:
            self._statistics.oversize_allocations.increase(1)
        if self._on_event is not None:
            self._on_event("alloc", address, nbytes, stream)
        return address

    def free(self, address: int) -> None:
        """Takes a block back; it can be handed out again immediately, unless another stream was recorded to use it.

        Raises:
            KeyError: No block is handed out at this address.
        """
        if address == 0:
            return
        block = self._blocks.pop(address)
        block.allocated = False
        size, requested = block.size, block.requested_size
        if self._on_event is not None:
            self._on_event("free_requested", address, requested, block.stream)
        if size >= self._max_split:
            self._statistics.oversize_allocations.decrease(1)
        if block.stream_uses is None:
            block.pool.statistics.give_back(size, requested)
            self._all.give_back(size, requested)
            self._join(block)
            return
        block.pool.statistics.take_back(size)
        self._all.take_back(size)
        if self._captures:
            self._events.defer(block)
        else:
            self._events.insert(block)

    def has_cached(self, nbytes: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> bool:
        """Whether a request would be served without new memory, and nothing taken; see ``malloc`` for the arguments."""
        size = self.config.round_size(max(nbytes, 1))
        blocks = self._pools.get(pool, size <= SMALL_BYTES)
        block = self._fit.take(blocks, stream, size)
        if block is not None:
            insort(blocks.free[stream], (block.size, block.ptr, block))
            return True
        if not self.config.expandable_segments:
            return False
        room = self._segments.expandable.find_room(blocks, stream, size)
        return room is not None and room.mapped and room.size >= size

    def _refuse(self, nbytes: int) -> int:
        """The answer to a size that never reaches the pools: 0, or above an exbibyte."""
        if nbytes < 0:
            raise ValueError(f"an allocation cannot have a negative size, got {nbytes} bytes")
        if nbytes > 0:
            raise OutOfMemory(too_large_text(), requested_bytes=nbytes, alloc_bytes=nbytes)
        return 0

    def _get_new_block(self, pool: BlockPool, stream: int, size: int, nbytes: int) -> Block:
        """A block for which the cache alone had no room; see ``malloc`` for the order of attempts."""
        segments = self._segments
        if segments.collects_garbage:
            segments.collect_garbage(self._pools.large)
        block = segments.alloc_block(pool, stream, size, nbytes)
        if block is None and pool.private is None and not self.config.expandable_segments:  # as seen in 2.15
            block = self._borrow(stream, size)
        if block is None and segments.release_oversize(pool, stream, size):
            block = segments.alloc_block(pool, stream, size, nbytes)
        if block is None and not self._captures:
            self._release.cached(DEFAULT_POOL, capturing=False)
            self._statistics.num_alloc_retries += 1
            block = segments.alloc_block(pool, stream, size, nbytes)
        if block is None:
            self._statistics.num_ooms += 1
            if self._on_event is not None:
                self._on_event("oom", self.driver.free_bytes, size, stream)
            raise self._out_of_memory(size, nbytes)
        return block

    def _borrow(self, stream: int, size: int) -> Block | None:
        """A free block of a pool that may serve others in need (C++: ``try_mempool_fallback``)."""
        for pool in self._pools.lenders(size <= SMALL_BYTES):
            block = self._fit.take(pool, stream, size)
            if block is not None:
                return block
        return None

    def _free_block(self, block: Block) -> None:
        """Frees a block that other streams used until now."""
        block.pool.statistics.settle(block.size, block.requested_size)
        self._all.settle(block.size, block.requested_size)
        self._join(block)

    def _join(self, block: Block) -> None:
        """Puts an unused block among the free ones, joined with its free neighbours (C++: ``free_block``)."""
        pool = block.pool
        if self._on_event is not None:
            self._on_event("free_completed", block.ptr, block.requested_size, block.stream)
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

    def _change_inactive_split(self, pool: BlockPool, blocks: int, nbytes: int) -> None:
        pool.statistics.change_inactive_split(blocks, nbytes)
        self._all.change_inactive_split(blocks, nbytes)

    def _adopt(self, blocks: list[Block]) -> None:
        """Takes over all blocks of one segment."""
        whole = blocks[0].segment is None
        mapped = sum(block.size for block in blocks if block.mapped)
        (self._segments.count_segment if whole else self._segments.grow)(blocks[0].pool, mapped)
        for block in blocks:
            statistics = (block.pool.statistics, self._statistics.all)
            if block.active:
                for stats in statistics:
                    stats.hand_out(block.size, block.requested_size)
                if block.allocated:
                    self._blocks[block.ptr] = block
                    if block.size >= self._max_split:
                        self._statistics.oversize_allocations.increase(1)
                    continue
                for stats in statistics:
                    stats.take_back(block.size)
                self._events.insert(block)
            elif block.mapped:
                block.pool.insert(block)
                if whole and block.is_split:
                    self._change_inactive_split(block.pool, 1, block.size)
            else:
                block.pool.insert_unmapped(block)

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
        """Waits for all streams, as ``torch.cuda.synchronize``; the next malloc frees what ``pending`` held back."""
        self._events.synchronize()

    def complete_events(self, address: int) -> None:
        """Ends the wait of one freed block now; how a replay says what a trace calls ``free_completed``.

        Raises:
            KeyError: No freed block waits at this address.
        """
        self._events.complete(address)

    # ---- giving memory back

    def empty_cache(self, pool: PoolId = DEFAULT_POOL) -> None:
        """Gives back every segment without a block in use, as ``torch.cuda.empty_cache``.

        Args:
            pool: Only the segments of this released private pool.
        """
        self._release.cached(pool, capturing=self._captures > 0)

    def release_segment(self, address: int) -> None:
        """Gives one free segment back; how a replay follows a garbage collection, for no trace has its limit.

        Raises:
            KeyError: No segment without a block in use begins at this address.
        """
        self._release.segment(address)

    # ---- limits and private pools

    def set_memory_fraction(self, fraction: float) -> None:
        """Limits this process to a share of the device, as ``torch.cuda.set_per_process_memory_fraction``; 1 lifts it.

        Raises:
            ValueError: The fraction is not from 0 to 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"a memory fraction is from 0.0 to 1.0, got {fraction}")
        self._segments.limit = int(fraction * self.total_bytes) if fraction < 1.0 else None

    def create_pool(self, *, use_on_oom: bool = False, no_split: bool = False) -> PoolId:
        """The name of a new private pool, as a CUDA graph or ``torch.cuda.MemPool`` has one.

        Args:
            use_on_oom: Other requests may take its free blocks before they run out of memory.
            no_split: Its blocks are handed out whole.
        """
        return self._pools.create(use_on_oom=use_on_oom, no_split=no_split)

    def release_pool(self, pool: PoolId) -> None:
        """Lets a private pool go: its segments are given back with the cache, once no block of them is in use."""
        self._pools.release(pool)

    def begin_capture(self) -> None:
        """Starts a CUDA graph's capture: until its end nothing cached is released and no event is checked."""
        self._captures += 1

    def end_capture(self) -> None:
        """Ends a capture; blocks freed in it that other streams use begin to wait for them."""
        self._captures -= 1
        if not self._captures:
            self._events.insert_deferred()

    # ---- what it reports

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
        """``torch.cuda.memory_allocated()``, without the cost of ``stats``; so are the three below."""
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

    def snapshot(self) -> dict[str, Any]:
        """The state of every segment and block, in the format of ``torch.cuda.memory._snapshot()``, without traces."""
        return {
            "segments": describe_segments(self._all_blocks(), self.device),
            "device_traces": [[] for _ in range(self.device + 1)],
            "allocator_settings": describe_settings(self.config, self.conf),
            "external_annotations": [],
        }

    def _all_blocks(self) -> Iterator[Block]:
        """Every block that is backed by memory, in no order."""
        yield from self._blocks.values()
        yield from self._events.waiting()
        yield from self._pools.free_blocks()

    def _out_of_memory(self, size: int, nbytes: int) -> OutOfMemory:
        stats, driver = self._statistics.all, self.driver
        alloc_bytes = self._segments.allocation_size(size)
        text = out_of_memory_text(
            alloc_bytes=alloc_bytes,
            device=self.device,
            total_bytes=self.total_bytes,
            free_bytes=driver.free_bytes,
            process_bytes=driver.process_bytes,
            others_bytes=self.total_bytes - driver.process_bytes - driver.free_bytes,
            allowed_bytes=self._segments.limit,
            allocated_bytes=stats.allocated_bytes.current,
            reserved_bytes=stats.reserved_bytes.current,
            private_free_bytes=self._pools.private_free_bytes(),
            advice=self._advice(alloc_bytes),
        )
        return OutOfMemory(text, requested_bytes=nbytes, alloc_bytes=alloc_bytes)

    def _advice(self, alloc_bytes: int) -> str:
        if not self.config.expandable_segments or self._version < (2, 15):
            return FRAGMENTATION_ADVICE
        reserve_bytes = self.config.reserve_bytes(self.total_bytes)
        if self.config.expandable_segments_reserve is not None and alloc_bytes > reserve_bytes:
            return reserve_advice(reserve_bytes, alloc_bytes)
        return EXPANDABLE_ADVICE

"""What the allocator keeps books of: the blocks of a segment, and the pool its free ones lie in."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from memguard.allocator.expandable import ExpandableSegment
    from memguard.allocator.pools import PrivatePool
    from memguard.allocator.statistics import PoolStatistics

MIN_BLOCK_BYTES: Final = 512
"""Every block's size is a multiple of it (C++: ``kMinBlockSize``)."""
SMALL_BYTES: Final = 1 << 20
"""Largest block of a small pool (C++: ``kSmallSize``)."""
SMALL_SEGMENT_BYTES: Final = 2 << 20
"""Segment of a small pool, and page of a small expandable segment (C++: ``kSmallBuffer``)."""
MIN_LARGE_ALLOC_BYTES: Final = 10 << 20
"""From here on a request gets a segment of its own size (C++: ``kMinLargeAlloc``)."""
ROUND_LARGE_BYTES: Final = 2 << 20
"""What such a segment's size is rounded to (C++: ``kRoundLarge``)."""

PoolId = tuple[int, int]
"""The name of a private pool; ``(0, 0)`` is the default pool."""
DEFAULT_POOL: Final[PoolId] = (0, 0)


@final
class Block:
    """A range of one segment, either handed out or free (C++: ``Block``).

    ``prev`` and ``next`` link the blocks of a segment in the order of their addresses, without gaps.
    """

    __slots__ = (
        "active",
        "allocated",
        "event_count",
        "gc_count_base",
        "mapped",
        "next",
        "pool",
        "prev",
        "ptr",
        "requested_size",
        "segment",
        "size",
        "stream",
        "stream_uses",
    )

    def __init__(self, stream: int, size: int, ptr: int, pool: BlockPool, segment: ExpandableSegment | None) -> None:
        self.stream = stream
        self.size = size
        self.ptr = ptr
        self.pool = pool
        self.segment = segment
        self.prev: Block | None = None
        self.next: Block | None = None
        self.allocated = False
        """Owned by a tensor."""
        self.active = False
        """Owned by a tensor, or freed while another stream may still use it. What is not active is free or unmapped."""
        self.mapped = True
        """Backed by memory; False only for address space of an expandable segment."""
        self.requested_size = 0
        self.stream_uses: set[int] | None = None
        """Other streams that use the block (``record_stream``)."""
        self.event_count = 0
        self.gc_count_base = 0
        """The pool's ``get_free_blocks_call_count`` when the block became free: its age for the garbage collector."""

    @property
    def is_split(self) -> bool:
        """Whether other blocks share its segment."""
        return self.prev is not None or self.next is not None

    def split(self, size: int) -> Block:
        """Cuts ``size`` bytes off the front as a new block; this block becomes the remainder behind it."""
        front = Block(self.stream, size, self.ptr, self.pool, self.segment)
        front.mapped = self.mapped
        front.prev = before = self.prev
        if before is not None:
            before.next = front
        front.next = self
        self.prev = front
        self.ptr += size
        self.size -= size
        return front

    def absorb(self, other: Block | None) -> int:
        """Merges a free neighbour of the same kind into this block (C++: ``try_merge_blocks``).

        The caller takes the neighbour out of its pool. Returns the neighbour's size, 0 if it cannot be merged.
        """
        if other is None or other.active or other.mapped != self.mapped:
            return 0
        if self.prev is other:
            self.ptr = other.ptr
            self.prev = before = other.prev
            if before is not None:
                before.next = self
        else:
            self.next = after = other.next
            if after is not None:
                after.prev = self
        self.size += other.size
        return other.size


FreeList = list[tuple[int, int, Block]]
"""Free blocks of one stream as ``(size, ptr, block)``, in this order: the first one large enough fits best."""


@final
class BlockPool:
    """The small or the large pool, of the default or a private kind (C++: ``BlockPool``).

    The C++ set is ordered by stream, size and address; here each stream has a list of its own.
    """

    __slots__ = ("free", "get_free_blocks_call_count", "is_small", "private", "statistics", "unmapped")

    def __init__(self, *, is_small: bool, statistics: PoolStatistics, private: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.statistics = statistics
        self.private = private
        self.free: defaultdict[int, FreeList] = defaultdict(list)
        self.unmapped: defaultdict[int, list[tuple[int, Block]]] = defaultdict(list)
        """Address space without memory per stream, as ``(ptr, block)`` in the order of addresses."""
        self.get_free_blocks_call_count = 0

    def insert(self, block: Block) -> None:
        """Puts a block among the free ones."""
        block.gc_count_base = self.get_free_blocks_call_count
        insort(self.free[block.stream], (block.size, block.ptr, block))

    def remove(self, block: Block) -> None:
        """Takes a block out of the free ones."""
        blocks = self.free[block.stream]
        del blocks[bisect_left(blocks, (block.size, block.ptr))]

    def insert_unmapped(self, block: Block) -> None:
        """Puts a block among the address space without memory."""
        insort(self.unmapped[block.stream], (block.ptr, block))

    def remove_unmapped(self, block: Block) -> None:
        """Takes a block out of the address space without memory."""
        blocks = self.unmapped[block.stream]
        del blocks[bisect_left(blocks, (block.ptr,))]

    def free_blocks(self) -> Iterator[Block]:
        """The free blocks in the order of the C++ set: by stream, size and address."""
        for stream in sorted(self.free):
            for _, _, block in self.free[stream]:
                yield block

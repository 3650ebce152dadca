"""Expandable segments: ranges of addresses that get memory page by page, so that a segment can grow and shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from memguard.allocator.blocks import SMALL_SEGMENT_BYTES, Block, BlockPool

if TYPE_CHECKING:
    from memguard.allocator.config import AllocatorConfig
    from memguard.allocator.driver import Driver


@final
class ExpandableSegment:
    """A range of addresses whose pages are backed by memory one by one (C++: ``ExpandableSegment``)."""

    __slots__ = ("page_bytes", "ptr", "size")

    def __init__(self, ptr: int, size: int, page_bytes: int) -> None:
        self.ptr = ptr
        self.size = size
        self.page_bytes = page_bytes

    def pages_around(self, ptr: int, size: int) -> tuple[int, int]:
        """Address and size of the whole pages that cover a range."""
        begin = (ptr - self.ptr) // self.page_bytes * self.page_bytes
        end = -(-(ptr + size - self.ptr) // self.page_bytes) * self.page_bytes
        return self.ptr + begin, end - begin

    def pages_within(self, ptr: int, size: int) -> tuple[int, int]:
        """Address and size of the whole pages inside a range; the size is 0 if there is none."""
        begin = -(-(ptr - self.ptr) // self.page_bytes) * self.page_bytes
        end = (ptr + size - self.ptr) // self.page_bytes * self.page_bytes
        return self.ptr + begin, max(0, end - begin)


@final
class ExpandableSegments:
    """How blocks are found, backed and given back in expandable segments.

    Args:
        driver: Gives addresses and memory.
        config: The allocator's settings.
        on_map: Called with pool, stream, address and size once memory was added.
        on_unmap: The same once memory was given back.
    """

    def __init__(
        self,
        driver: Driver,
        config: AllocatorConfig,
        on_map: Callable[[BlockPool, int, int, int], None],
        on_unmap: Callable[[BlockPool, int, int, int], None],
    ) -> None:
        self._driver = driver
        self._config = config
        self._on_map = on_map
        self._on_unmap = on_unmap
        self._reserve_bytes = config.reserve_bytes(driver.total_bytes)

    def page_bytes(self, pool: BlockPool) -> int:
        """The page of a pool's segments: 2 MiB if it is small, else the size of a large segment."""
        return SMALL_SEGMENT_BYTES if pool.is_small else self._config.large_segment_bytes

    def segment_bytes(self, pool: BlockPool) -> int:
        """The addresses that a new segment of a pool takes: whole pages, by default 9/8 of the device."""
        page = self.page_bytes(pool)
        return -(-self._reserve_bytes // page) * page

    def allocate(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """A free block of at least this size, out of its pool; None if memory runs out on the way.

        Pages that were mapped before memory ran out stay mapped, as in PyTorch.
        """
        block = self._find(pool, stream, size)
        if block is not None and not block.mapped:
            block = self._map(block, min(block.size, size))
        while block is not None and block.size < size:
            behind = block.next
            assert behind is not None and not behind.mapped  # what _find saw behind a free block
            block = self._map(behind, min(size - block.size, behind.size))
        if block is not None:
            pool.remove(block)
        return block

    def _find(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Where a block of this size can be backed (C++: ``find_expandable_block``): first fit by address."""
        found = self.find_room(pool, stream, size)
        if found is not None:
            return found
        nbytes = self.segment_bytes(pool)
        segment = ExpandableSegment(self._driver.reserve(nbytes), nbytes, self.page_bytes(pool))
        if size > nbytes:
            self._driver.unreserve(segment.ptr, nbytes)
            return None
        block = Block(stream, nbytes, segment.ptr, pool, segment)
        block.mapped = False
        pool.insert_unmapped(block)
        return block

    def find_room(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """The first of the free and unmapped blocks in a row that have room for a size; None if no segment has."""
        for _, block in pool.unmapped[stream]:
            before = block.prev
            start = block if before is None or before.active else before
            room, at = 0, start
            while True:
                room += at.size
                if room >= size:
                    return start
                if at.next is None or at.next.active:
                    break
                at = at.next
        return None

    def _map(self, block: Block, size: int) -> Block | None:
        """Backs the front of an unmapped block with whole pages (C++: ``map_block``).

        Returns the block made of these pages and the free blocks around them; None if memory ran out.
        """
        segment, pool = block.segment, block.pool
        assert segment is not None
        ptr, mapped = segment.pages_around(block.ptr, size)
        for done in range(0, mapped, segment.page_bytes):
            if not self._driver.map(ptr + done, segment.page_bytes):
                for undo in range(0, done, segment.page_bytes):
                    self._driver.unmap(ptr + undo, segment.page_bytes)
                return None
        pool.remove_unmapped(block)
        if mapped < block.size:
            rest, block = block, block.split(mapped)
            pool.insert_unmapped(rest)
        block.mapped = True
        self._merge(block)
        pool.insert(block)
        self._on_map(pool, block.stream, ptr, mapped)
        return block

    def unmap(self, block: Block) -> None:
        """Gives back the whole pages in a free block (C++: ``unmap_block``); parts of other pages stay free blocks."""
        segment, pool = block.segment, block.pool
        assert segment is not None
        ptr, size = segment.pages_within(block.ptr, block.size)
        if size == 0:
            return
        pool.remove(block)
        if ptr > block.ptr:
            pool.insert(block.split(ptr - block.ptr))
        if block.size > size:
            rest, block = block, block.split(size)
            pool.insert(rest)
        block.mapped = False
        for done in range(0, size, segment.page_bytes):
            self._driver.unmap(ptr + done, segment.page_bytes)
        self._merge(block)
        pool.insert_unmapped(block)
        self._on_unmap(pool, block.stream, ptr, size)
        if not block.is_split:
            pool.remove_unmapped(block)
            self._driver.unreserve(segment.ptr, segment.size)

    def _merge(self, block: Block) -> None:
        """Joins a block with neighbours of its own kind, free or without memory."""
        pool = block.pool
        remove = pool.remove if block.mapped else pool.remove_unmapped
        for other in (block.prev, block.next):
            if other is not None and not other.active and other.mapped == block.mapped:
                remove(other)
                block.absorb(other)

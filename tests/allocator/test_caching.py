"""The allocator's behaviour, rule by rule; that the rules are PyTorch's is for the golden traces to show."""

from __future__ import annotations

import pytest

from memguard.allocator import CachingAllocator, OutOfMemory

MIB = 1 << 20
GIB = 1 << 30


def test_zero_bytes_take_no_memory() -> None:
    """An empty tensor has address 0, which may be freed."""
    allocator = CachingAllocator(GIB)
    assert allocator.malloc(0) == 0
    allocator.free(0)
    assert allocator.stats()["allocation.all.allocated"] == 0


def test_misuse_is_an_error() -> None:
    """A negative size, an address that is not handed out, and a fraction above one are refused."""
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(1)
    allocator.free(address)
    with pytest.raises(KeyError):
        allocator.free(address)
    with pytest.raises(KeyError):
        allocator.record_stream(address, 1)
    with pytest.raises(ValueError, match="-1 bytes"):
        allocator.malloc(-1)
    with pytest.raises(ValueError, match=r"1.5"):
        allocator.set_memory_fraction(1.5)


def test_small_requests_share_a_segment_of_two_mib() -> None:
    """Blocks of at most 1 MiB lie side by side; their sizes are rounded to 512 bytes."""
    allocator = CachingAllocator(GIB)
    first, second = allocator.malloc(100), allocator.malloc(100)
    assert second == first + 512
    assert allocator.reserved_bytes == 2 * MIB
    assert allocator.allocated_bytes == 1024
    assert allocator.stats()["requested_bytes.small_pool.current"] == 200


def test_large_remainders_of_at_most_one_mib_stay_with_their_block() -> None:
    """A large block is split only if more than 1 MiB is left, so allocated may exceed what was asked."""
    allocator = CachingAllocator(GIB)
    allocator.malloc(19 * MIB)
    assert allocator.allocated_bytes == 20 * MIB
    allocator.malloc(9 * MIB)
    assert allocator.allocated_bytes == 29 * MIB
    assert allocator.reserved_bytes == 40 * MIB


def test_best_fit_then_lowest_address() -> None:
    """The smallest block that is large enough is taken, among equals the one at the lowest address."""
    allocator = CachingAllocator(GIB)
    large, first, second = (allocator.malloc(n * MIB) for n in (60, 40, 40))
    for address in (second, large, first):
        allocator.free(address)
    assert allocator.malloc(40 * MIB) == first
    assert allocator.malloc(40 * MIB) == second
    assert allocator.malloc(40 * MIB) == large


def test_free_neighbours_merge() -> None:
    """Blocks of one segment become one free block again."""
    allocator = CachingAllocator(GIB)
    addresses = [allocator.malloc(4 * MIB) for _ in range(5)]
    assert allocator.reserved_bytes == 20 * MIB
    for address in (addresses[0], addresses[2], addresses[1]):
        allocator.free(address)
    assert allocator.malloc(12 * MIB) == addresses[0]


def test_streams_do_not_share_blocks() -> None:
    """A free block serves its own stream only."""
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(40 * MIB)
    allocator.free(address)
    assert allocator.malloc(40 * MIB, stream=1) != address


def test_cache_is_given_back_before_giving_up() -> None:
    """A request that the driver refuses is tried again after the cache was emptied; that counts as a retry."""
    allocator = CachingAllocator(100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    stats = allocator.stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
    assert allocator.reserved_bytes == 80 * MIB


def test_out_of_memory_has_pytorchs_words_and_figures() -> None:
    """The text names the size of the segment that was asked for, not the request."""
    allocator = CachingAllocator(100 * MIB)
    allocator.malloc(90 * MIB)
    with pytest.raises(OutOfMemory) as info:
        allocator.malloc(3 * MIB)
    assert str(info.value).startswith(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 100.00 MiB of which 10.00 MiB "
        "is free. Including non-PyTorch memory, this process has 90.00 MiB memory in use. Of the allocated memory "
        "90.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If reserved"
    )
    assert (info.value.requested_bytes, info.value.alloc_bytes) == (3 * MIB, 20 * MIB)
    assert allocator.stats()["num_ooms"] == 1


def test_memory_of_others_and_of_the_context_is_not_there_to_give() -> None:
    """What others and the CUDA context hold lowers what fits, and stands in the text."""
    allocator = CachingAllocator(GIB, context_bytes=300 * MIB, reserved_by_others_bytes=200 * MIB)
    allocator.malloc(500 * MIB)
    with pytest.raises(OutOfMemory, match=r"24.00 MiB is free.*this process has 800.00 MiB.*200.00 MiB memory in use"):
        allocator.malloc(100 * MIB)


def test_memory_fraction_limits_and_is_lifted() -> None:
    """A limit refuses what the device could give, and says what is allowed; a fraction of one lifts it."""
    allocator = CachingAllocator(GIB)
    allocator.set_memory_fraction(0.5)
    with pytest.raises(OutOfMemory, match=r"512.00 MiB allowed; Of the"):
        allocator.malloc(600 * MIB)
    allocator.set_memory_fraction(1.0)
    allocator.malloc(600 * MIB)


def test_empty_cache_gives_back_whole_segments_only() -> None:
    """A segment with one block in use stays."""
    allocator = CachingAllocator(GIB)
    kept, freed = allocator.malloc(4 * MIB), allocator.malloc(4 * MIB)
    whole = allocator.malloc(30 * MIB)
    allocator.free(freed)
    allocator.free(whole)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 20 * MIB
    assert allocator.stats()["inactive_split_bytes.all.current"] == 16 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_peaks_and_accumulated_figures_are_reset_apart() -> None:
    """Resetting peaks keeps the sums, resetting the sums keeps the peaks."""
    allocator = CachingAllocator(GIB)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.reset_peak_stats()
    assert allocator.allocated_peak_bytes == 0
    assert allocator.reserved_peak_bytes == 30 * MIB
    assert allocator.stats()["allocated_bytes.all.allocated"] == 30 * MIB
    allocator.malloc(30 * MIB)
    allocator.reset_accumulated_stats()
    stats = allocator.stats()
    assert allocator.allocated_peak_bytes == 30 * MIB
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 0
    assert stats["allocated_bytes.all.current"] == 30 * MIB


def test_max_split_keeps_oversize_blocks_whole() -> None:
    """An oversize block serves oversize requests of about its size, and is released when nothing else fits."""
    allocator = CachingAllocator(GIB, "max_split_size_mb:64")
    big = allocator.malloc(200 * MIB)
    allocator.free(big)
    assert allocator.malloc(30 * MIB) != big
    assert allocator.malloc(190 * MIB) == big
    assert allocator.stats()["oversize_allocations.current"] == 1
    assert allocator.stats()["max_split_size"] == 64 * MIB


def test_garbage_collection_releases_old_blocks_near_the_limit() -> None:
    """Above the threshold, blocks unused for long go before the driver is asked; without a limit they stay."""
    conf = "garbage_collection_threshold:0.5"
    limited = CachingAllocator(GIB, f"{conf},per_process_memory_fraction:0.9")
    unlimited = CachingAllocator(GIB, conf)
    for allocator in (limited, unlimited):
        for size in (300, 310):
            allocator.free(allocator.malloc(size * MIB))
        allocator.malloc(311 * MIB)
    assert limited.stats()["segment.all.freed"] == 1
    assert unlimited.stats()["segment.all.freed"] == 0


def test_expandable_segments_grow_by_pages_and_are_reused() -> None:
    """The article's case: a larger block grows the segment where a new one would have been needed."""
    plain, expandable = CachingAllocator(GIB), CachingAllocator(GIB, "expandable_segments:True")
    for allocator in (plain, expandable):
        allocator.free(allocator.malloc(100 * MIB))
        allocator.malloc(160 * MIB)
    assert plain.reserved_bytes == 260 * MIB
    assert expandable.reserved_bytes == 160 * MIB


def test_expandable_segment_gives_back_free_pages_only() -> None:
    """Empty pages go with the cache even where the segment is in use elsewhere."""
    allocator = CachingAllocator(GIB, "expandable_segments:True")
    first, second = allocator.malloc(50 * MIB), allocator.malloc(50 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 60 * MIB
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_private_pool_keeps_its_memory_until_released() -> None:
    """Blocks of a private pool serve it alone; its segments go with the cache once it is released."""
    allocator = CachingAllocator(GIB)
    pool = allocator.create_pool()
    address = allocator.malloc(40 * MIB, pool=pool)
    allocator.free(address)
    assert allocator.malloc(40 * MIB) != address
    assert allocator.malloc(40 * MIB, pool=pool) == address
    allocator.free(address)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 80 * MIB
    assert allocator.stats()["reserved_bytes_by_private_pools.0_1.all.current"] == 40 * MIB
    allocator.release_pool(pool)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 40 * MIB


def test_pool_may_serve_others_in_need() -> None:
    """Free blocks of a pool made for it are used before a request fails."""
    allocator = CachingAllocator(100 * MIB)
    pool = allocator.create_pool(use_on_oom=True)
    address = allocator.malloc(80 * MIB, pool=pool)
    allocator.free(address)
    assert allocator.malloc(60 * MIB) == address


def test_released_pool_serves_nobody() -> None:
    """A pool that was let go lends nothing; its memory is given back instead."""
    allocator = CachingAllocator(100 * MIB)
    pool = allocator.create_pool(use_on_oom=True)
    address = allocator.malloc(80 * MIB, pool=pool)
    allocator.free(address)
    allocator.release_pool(pool)
    assert allocator.malloc(60 * MIB) != address
    assert allocator.reserved_bytes == 60 * MIB


def test_pool_may_hand_out_its_blocks_whole() -> None:
    """A pool made so splits nothing, not even small blocks."""
    allocator = CachingAllocator(GIB)
    allocator.malloc(100, pool=allocator.create_pool(no_split=True))
    assert allocator.allocated_bytes == 2 * MIB


def test_one_free_segment_can_be_released() -> None:
    """A replay gives back the segment that its trace names, and no other."""
    allocator = CachingAllocator(GIB)
    first, second = allocator.malloc(40 * MIB), allocator.malloc(40 * MIB)
    allocator.free(first)
    allocator.release_segment(first)
    assert allocator.reserved_bytes == 40 * MIB
    with pytest.raises(KeyError):
        allocator.release_segment(second)


def test_recorded_stream_holds_a_block_until_the_next_malloc() -> None:
    """With events done at once, a freed block that another stream used is free at the next allocation."""
    allocator = CachingAllocator(GIB)
    address = allocator.malloc(40 * MIB)
    allocator.record_stream(address, 7)
    allocator.free(address)
    stats = allocator.stats()
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["active_bytes.all.current"] == 40 * MIB
    assert allocator.malloc(40 * MIB) == address


def test_pending_events_hold_a_block_until_synchronize() -> None:
    """With events unfinished, only a synchronisation frees the block; its own stream recorded holds nothing."""
    allocator = CachingAllocator(GIB, pending=True)
    held, own = allocator.malloc(40 * MIB), allocator.malloc(60 * MIB)
    allocator.record_stream(held, 7)
    allocator.record_stream(own, 0)
    allocator.free(held)
    allocator.free(own)
    assert allocator.malloc(60 * MIB) == own
    assert allocator.malloc(40 * MIB) != held
    allocator.synchronize()
    assert allocator.malloc(40 * MIB) == held


def test_events_of_one_block_can_be_completed() -> None:
    """A replay frees a block at the moment its trace says so."""
    allocator = CachingAllocator(GIB, pending=True)
    address = allocator.malloc(40 * MIB)
    allocator.record_stream(address, 1)
    allocator.record_stream(address, 2)
    allocator.free(address)
    allocator.complete_events(address)
    assert allocator.malloc(40 * MIB) == address
    with pytest.raises(KeyError):
        allocator.complete_events(address)


def test_capture_releases_nothing() -> None:
    """During a graph's capture the cache stays, and blocks of other streams wait for its end."""
    allocator = CachingAllocator(100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    held = allocator.malloc(10 * MIB)
    allocator.begin_capture()
    allocator.record_stream(held, 1)
    allocator.free(held)
    with pytest.raises(OutOfMemory):
        allocator.malloc(90 * MIB)
    assert allocator.stats()["active_bytes.all.current"] == 10 * MIB
    allocator.end_capture()
    allocator.malloc(90 * MIB)
    assert allocator.stats()["num_alloc_retries"] == 1


def test_events_tell_what_a_trace_would() -> None:
    """The hook hears every action with address, size and stream, in order."""
    heard: list[tuple[str, int, int, int]] = []
    allocator = CachingAllocator(50 * MIB, on_event=lambda *event: heard.append(event))
    address = allocator.malloc(3 * MIB, stream=5)
    allocator.free(address)
    with pytest.raises(OutOfMemory):
        allocator.malloc(60 * MIB)
    assert heard == [
        ("segment_alloc", address, 20 * MIB, 5),
        ("alloc", address, 3 * MIB, 5),
        ("free_requested", address, 3 * MIB, 5),
        ("free_completed", address, 3 * MIB, 5),
        ("segment_free", address, 20 * MIB, 5),
        ("oom", 50 * MIB, 60 * MIB, 0),
    ]


def test_article_figures_in_proportion() -> None:
    """Two tensors, one dropped and made again: allocated follows the names, reserved the most that was needed."""
    allocator = CachingAllocator(GIB)
    size = 64 * MIB
    figures = []

    def note() -> None:
        figures.append((allocator.allocated_bytes // size, allocator.reserved_bytes // size))

    a, b = allocator.malloc(size), allocator.malloc(size)
    note()
    allocator.free(b)
    note()
    c = allocator.malloc(size)
    note()
    again = allocator.malloc(size)  # made before the old one under the same name is dropped
    allocator.free(c)
    note()
    d = allocator.malloc(size)
    note()
    allocator.free(d)
    note()
    assert figures == [(2, 2), (1, 2), (2, 2), (2, 3), (3, 3), (2, 3)]
    assert {a, again} <= {block["address"] for s in allocator.snapshot()["segments"] for block in s["blocks"]}

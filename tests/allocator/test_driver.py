from __future__ import annotations

import pytest

from memguard.allocator import CachingAllocator, FallingDriver, RisingDriver

MIB = 1 << 20


def test_addresses_rise_in_units_and_memory_runs_out() -> None:
    """Addresses are never handed out twice; what does not fit is refused, what was freed fits again."""
    driver = RisingDriver(10 * MIB, first_address=0)
    assert driver.malloc(3 * MIB) == 0
    assert driver.malloc(2 * MIB) == 4 * MIB
    assert driver.malloc(6 * MIB) is None
    driver.free(0, 3 * MIB)
    assert driver.malloc(6 * MIB) == 6 * MIB
    assert driver.free_bytes == 2 * MIB


def test_context_and_others_take_their_part() -> None:
    """Free is what neither this process nor others hold, never below zero."""
    driver = RisingDriver(100 * MIB, context_bytes=30 * MIB, others_bytes=80 * MIB)
    assert driver.free_bytes == 0
    assert driver.process_bytes == 30 * MIB
    assert driver.malloc(2 * MIB) is None


class Recorded:
    """A driver that hands out the addresses of a trace."""

    def __init__(self, addresses: list[int]) -> None:
        self.total_bytes = self.free_bytes = 1 << 40
        self.process_bytes = 0
        self.addresses = addresses

    def malloc(self, nbytes: int) -> int | None:
        return self.addresses.pop(0)

    def free(self, address: int, nbytes: int) -> None: ...

    def reserve(self, nbytes: int) -> int:
        return self.addresses.pop(0)

    def map(self, address: int, nbytes: int) -> bool:
        return True

    def unmap(self, address: int, nbytes: int) -> None: ...

    def unreserve(self, address: int, nbytes: int) -> None: ...


def test_another_driver_decides_the_addresses() -> None:
    """The allocator places blocks where the driver's segments are, expandable or not."""
    allocator = CachingAllocator(1 << 40, driver=Recorded([7 << 30, 5 << 30]))
    assert [allocator.malloc(30 * MIB), allocator.malloc(30 * MIB)] == [7 << 30, 5 << 30]
    expandable = CachingAllocator(1 << 40, "expandable_segments:True", driver=Recorded([9 << 30]))
    assert [expandable.malloc(30 * MIB), expandable.malloc(30 * MIB)] == [9 << 30, (9 << 30) + 30 * MIB]


def test_a_falling_driver_hands_out_lower_addresses_each_time() -> None:
    """In units of 2 MiB too, with the same count of what is held."""
    driver = FallingDriver(10 * MIB, first_address=100 * MIB, others_bytes=2 * MIB)
    assert [driver.malloc(3 * MIB), driver.malloc(MIB), driver.malloc(4 * MIB)] == [96 * MIB, 94 * MIB, None]
    assert driver.free_bytes == 2 * MIB
    driver.adopt(50 * MIB, 0)
    assert driver.malloc(2 * MIB) == 48 * MIB


@pytest.mark.parametrize(("kind", "taken"), [(RisingDriver, 0), (FallingDriver, 1)])
def test_of_free_blocks_of_one_size_the_lowest_is_taken(kind: type[RisingDriver], taken: int) -> None:
    """A small request splits the segment that came first if addresses rise, the second one if they fall."""
    allocator = CachingAllocator(100 * MIB, driver=kind(100 * MIB))
    blocks = [allocator.malloc(40 * MIB) for _ in range(2)]
    for block in blocks:
        allocator.free(block)
    assert allocator.malloc(30 * MIB) == blocks[taken]

from __future__ import annotations

from memguard.allocator import CachingAllocator, RisingDriver

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

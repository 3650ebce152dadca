"""What the allocator asks of the CUDA driver: memory, and addresses for it."""

from __future__ import annotations

from typing import Final, Protocol, final

DRIVER_UNIT_BYTES: Final = 2 << 20
"""The driver counts memory in units of this size."""


class Driver(Protocol):
    """The calls of the CUDA driver that the caching allocator makes; replace it to hand out recorded addresses."""

    @property
    def total_bytes(self) -> int:
        """Capacity of the device."""

    @property
    def free_bytes(self) -> int:
        """What nobody holds (``cudaMemGetInfo``)."""

    @property
    def process_bytes(self) -> int:
        """What this process holds, its context included."""

    def malloc(self, nbytes: int) -> int | None:
        """The address of new memory (``cudaMalloc``), None if it does not fit."""

    def free(self, address: int, nbytes: int) -> None:
        """Takes memory back (``cudaFree``)."""

    def reserve(self, nbytes: int) -> int:
        """The address of a range without memory (``cuMemAddressReserve``)."""

    def map(self, address: int, nbytes: int) -> bool:
        """Gives memory to a page of such a range (``cuMemCreate``, ``cuMemMap``); False if it does not fit."""

    def unmap(self, address: int, nbytes: int) -> None:
        """Takes the memory of a page back (``cuMemUnmap``, ``cuMemRelease``)."""

    def unreserve(self, address: int, nbytes: int) -> None:
        """Takes a range of addresses back (``cuMemAddressFree``)."""


class RisingDriver:
    """A driver that hands out ever higher addresses in units of 2 MiB and fails only when the capacity is used up.

    Args:
        total_bytes: Capacity of the device.
        context_bytes: What this process holds outside PyTorch: its CUDA context and libraries.
        others_bytes: What other processes hold.
        first_address: Where addresses begin.
    """

    def __init__(
        self, total_bytes: int, *, context_bytes: int = 0, others_bytes: int = 0, first_address: int = 1 << 44
    ) -> None:
        self.total_bytes = total_bytes
        self.context_bytes = context_bytes
        self.others_bytes = others_bytes
        self.used_bytes = 0
        """Held by the allocator."""
        self._next_address = first_address

    @property
    def process_bytes(self) -> int:
        """What this process holds, its context included."""
        return self.used_bytes + self.context_bytes

    @property
    def free_bytes(self) -> int:
        """What nobody holds; never negative."""
        return max(0, self.total_bytes - self.process_bytes - self.others_bytes)

    def malloc(self, nbytes: int) -> int | None:
        """The address of new memory, None if it does not fit."""
        if not self.map(0, _units(nbytes)):
            return None
        return self.reserve(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Takes memory back."""
        self.used_bytes -= _units(nbytes)

    def reserve(self, nbytes: int) -> int:
        """The address of a range without memory."""
        address = self._next_address
        self._next_address += _units(nbytes)
        return address

    def map(self, address: int, nbytes: int) -> bool:
        """Gives memory to a page; False if it does not fit."""
        if nbytes > self.free_bytes:
            return False
        self.used_bytes += nbytes
        return True

    def unmap(self, address: int, nbytes: int) -> None:
        """Takes the memory of a page back."""
        self.used_bytes -= nbytes

    def unreserve(self, address: int, nbytes: int) -> None:
        """Takes a range of addresses back; they are not handed out again."""

    def adopt(self, address: int, nbytes: int) -> None:
        """Counts memory that was taken before this driver began, and hands out addresses behind it only."""
        self.used_bytes += nbytes
        self._next_address = max(self._next_address, address + _units(nbytes))


@final
class FallingDriver(RisingDriver):
    """The same with ever lower addresses, as a real GPU's driver hands them out; the options are those of the other.

    Free blocks of one size are taken at the lowest address, so the order decides which of them stay whole.
    """

    def __init__(self, total_bytes: int, *, first_address: int = 1 << 46, **held: int) -> None:
        super().__init__(total_bytes, first_address=first_address, **held)

    def reserve(self, nbytes: int) -> int:
        """The address of a range without memory."""
        self._next_address -= _units(nbytes)
        return self._next_address

    def adopt(self, address: int, nbytes: int) -> None:
        """Counts memory that was taken before this driver began, and hands out addresses before it only."""
        self.used_bytes += nbytes
        self._next_address = min(self._next_address, address)


def _units(nbytes: int) -> int:
    return (nbytes + DRIVER_UNIT_BYTES - 1) // DRIVER_UNIT_BYTES * DRIVER_UNIT_BYTES

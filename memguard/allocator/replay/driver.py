"""A CUDA driver that gives what a recorded trace says the real one gave, and refuses where the real one refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, final

from memguard.allocator.snapshot import TraceEntry

_UNLIMITED_BYTES: Final = 1 << 44
_FIRST_UNRECORDED_ADDRESS: Final = 1 << 62

SegmentEvent = tuple[str, int, int, int]
"""Action, address, size and stream."""


@final
class RecordedDriver:
    """A driver for one replay.

    Before each call of the allocator it is told the segment events that the call led to; it gives memory while the next
    of them takes memory, and refuses it while the next gives memory back, since PyTorch only does so after a refusal.

    Args:
        address_space_bytes: Addresses of an expandable segment, where known.
        reserved_addresses: Where the expandable segments begin that there are already.
    """

    free_bytes = 0
    process_bytes = 0

    def __init__(self, address_space_bytes: int | None = None, reserved_addresses: Iterable[int] = ()) -> None:
        # The capacity is not recorded, and the trace itself tells where memory ran out; it matters only in that an
        # expandable segment has addresses for 9/8 of it.
        self.total_bytes = _UNLIMITED_BYTES if address_space_bytes is None else address_space_bytes * 8 // 9
        self._mapped_next: Iterable[int] = ()
        self._reserved: dict[int, int] = dict.fromkeys(reserved_addresses, self.total_bytes + self.total_bytes // 8)
        self._expected: list[SegmentEvent] = []
        self._surplus: Counter[SegmentEvent] = Counter()
        self._mapped_until = 0
        self._exhausted = False
        self._unrecorded = _FIRST_UNRECORDED_ADDRESS

    def expect(
        self,
        entries: Sequence[TraceEntry],
        *,
        out_of_memory: bool = False,
        mapped_next: Iterable[int] = (),
    ) -> None:
        """Tells what the call to come led to.

        Args:
            entries: Its segment events.
            out_of_memory: Whether it failed in the end.
            mapped_next: Where pages are mapped from here on for requests like this one; an expandable segment that the
                call needs, though only a later one may fill it, begins at the first that is in none yet.
        """
        self._mapped_next = mapped_next
        self._expected = [
            (entry.action, entry.address, entry.size, entry.stream)
            for entry in entries
            if entry.action.startswith("segment_")
        ]
        self._surplus.clear()
        self._mapped_until = 0
        self._exhausted = out_of_memory

    def saw(self, event: SegmentEvent) -> None:
        """Notes what the allocator did."""
        self._mapped_until = 0
        try:
            self._expected.remove(event)
        except ValueError:
            self._surplus[event] += 1

    def unrecorded_releases(self) -> list[int]:
        """Addresses of memory that the allocator gave back and PyTorch kept."""
        return [event[1] for event in self._surplus if event[0] in ("segment_free", "segment_unmap")]

    def mismatches(self) -> int:
        """In how many events the call and its record differ; one that differs in size or place counts once."""
        return max(len(self._expected), self._surplus.total())

    def malloc(self, nbytes: int) -> int | None:
        """The recorded address of new memory; None where it was refused."""
        if self._next_takes("segment_alloc"):
            return self._expected[0][1]
        return None if self._expected or self._exhausted else self._unrecorded_address(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Takes memory back."""

    def reserve(self, nbytes: int) -> int:
        """Where the next recorded mapping of this kind begins."""
        address = next((at for at in self._mapped_next if not self._is_reserved(at)), None)
        if address is None:
            address = self._unrecorded_address(nbytes)
        self._reserved[address] = nbytes
        return address

    def map(self, address: int, nbytes: int) -> bool:
        """Whether the page lies in the next recorded mapping."""
        if address < self._mapped_until:
            return True
        if self._next_takes("segment_map"):
            self._mapped_until = self._expected[0][1] + self._expected[0][2]
            return True
        return False

    def unmap(self, address: int, nbytes: int) -> None:
        """Takes the memory of a page back."""

    def unreserve(self, address: int, nbytes: int) -> None:
        """Takes a range of addresses back."""
        self._reserved.pop(address, None)

    def _is_reserved(self, address: int) -> bool:
        return any(0 <= address - begin < size for begin, size in self._reserved.items())

    def _next_takes(self, action: str) -> bool:
        return bool(self._expected) and self._expected[0][0] == action

    def _unrecorded_address(self, nbytes: int) -> int:
        address = self._unrecorded
        self._unrecorded += nbytes
        return address

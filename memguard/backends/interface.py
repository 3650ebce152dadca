"""What a backend is: where the numbers of one device come from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from memguard.records.stats import MemoryStats, SlowStats


class Backend(ABC):
    """The memory of one device. Reads; never acts, never synchronises, never initialises the device.

    What the device cannot measure stays None. `read` is on the per-batch path; `read_slow` runs in the slow lane's
    thread, every second or few.
    """

    @property
    @abstractmethod
    def device(self) -> str:
        """The device in PyTorch's writing, like ``"cuda:0"``; ``"virtual:24GiB"`` and ``"cpu"`` likewise."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The device's product name, where it has one."""

    @property
    @abstractmethod
    def total_bytes(self) -> int | None:
        """Capacity of the device; for the host, what the kernel would kill this process at."""

    @property
    def limit_bytes(self) -> int | None:
        """What this process may take of the capacity, where that is less than all."""
        return self.total_bytes

    @property
    def measures_peaks(self) -> bool:
        """Whether `read` knows true peaks between two boundaries, not only samples."""
        return True

    @abstractmethod
    def read(self) -> MemoryStats:
        """One look, without consequences; peaks are those since the last `boundary`."""

    @abstractmethod
    def boundary(self) -> MemoryStats:
        """One look at the end of a stretch; the peaks start anew."""

    def cut(self) -> MemoryStats:
        """A boundary at which no batch ends."""
        return self.boundary()

    def mark(self) -> object:
        """A boundary whose numbers `stats` tells later, in the order of the marks; as cheap as can be."""
        return self.boundary()

    def stats(self, mark: object) -> MemoryStats:
        """What `boundary` would have told at a mark."""
        assert isinstance(mark, MemoryStats)
        return mark

    def settled(self) -> Backend:
        """Who answers `mark` and `stats` from now on: another backend, if this one only asks that, and always will."""
        return self

    @abstractmethod
    def read_slow(self) -> SlowStats:
        """What is too dear for every batch."""

    def install(self) -> None:  # noqa: B027 - most backends have nothing to put in place
        """Puts in place what the backend needs in the process (a dispatch mode, a peak ledger)."""

    def follow_thread(self) -> None:  # noqa: B027
        """From now on it is the calling thread that trains, besides the one that called `install`."""

    def remove(self) -> None:  # noqa: B027
        """Takes away what `install` put in place."""

    def empty_cache(self) -> int | None:
        """Gives cached memory back to the driver.

        Returns:
            The bytes given back, or None where the device has no cache.
        """
        return None

"""Devices whose memory PyTorch's caching allocator manages: what CUDA and XPU share."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import replace
from typing import Any, cast

from memguard.backends.counters import Events, Look, stats_of
from memguard.backends.host import HostMemory
from memguard.backends.interface import Backend
from memguard.backends.meters import MODES, Meter, open_meter
from memguard.backends.peaks import PeakLedger
from memguard.forks import process
from memguard.records.stats import MemoryStats, SlowStats

logger = logging.getLogger("memguard")

_UNKNOWN = MemoryStats()


class CachingBackend(Backend):
    """One device with a caching allocator; all is unknown until the user's program has initialised it.

    Args:
        index: Number of the device; None is the current device at the first look after the initialisation.
        peaks: How per-batch peaks are measured, the option of that name.
        host: The process's own memory, for the slow lane.

    Raises:
        ValueError: `peaks` is not one of shared, exclusive, off.
    """

    kind: str
    """``"cuda"`` or ``"xpu"``."""
    ledger: PeakLedger
    """The process's one ledger for this kind of device."""

    def __init__(self, index: int | None = None, *, peaks: str = "shared", host: HostMemory | None = None) -> None:
        if peaks not in MODES:
            raise ValueError(f"peaks must be one of {', '.join(MODES)}, got {peaks!r}")
        self._index, self._peaks = index, peaks
        self._host = host if host is not None else HostMemory()
        self._events = Events()
        self._newest: tuple[Look | None, MemoryStats] = (None, _UNKNOWN)
        self._meter: Meter | None = None
        self._properties: Any = None
        self._installed = self._unsupported = False
        self._native = self._splits = True
        self._pid = process.pid

    @property
    def device(self) -> str:
        """Like ``"cuda:0"``; without a number while it is open which one."""
        self._live()
        return self.kind if self._index is None else f"{self.kind}:{self._index}"

    @property
    def name(self) -> str | None:
        """The product name, once the device is initialised."""
        return str(self._properties.name) if self._live() else None

    @property
    def total_bytes(self) -> int | None:
        """Capacity of the device, once it is initialised."""
        return int(self._properties.total_memory) if self._live() else None

    @property
    def measures_peaks(self) -> bool:
        """Unless they are switched off, or the allocator is one that does not count."""
        return self._peaks != "off" and not self._unsupported

    def read(self) -> MemoryStats:
        """One look; some 15 us."""
        try:
            return self.stats((self._meter or self._watched()).read() if self._live() else _UNKNOWN)
        except (RuntimeError, KeyError) as error:
            return self._without_statistics(error)

    def boundary(self) -> MemoryStats:
        """One look and, between `install` and `remove`, a new stretch; some 20 us."""
        return self.stats(self.mark())

    def mark(self) -> object:
        """A boundary in torch's order of numbers; `stats` puts it into our words."""
        meter = self._meter
        try:
            if meter is None or self._unsupported or process.pid != self._pid:
                return (self._meter or self._watched()).boundary() if self._live() else _UNKNOWN
            return meter.boundary()  # one that was opened shows that the device is initialised
        except (RuntimeError, KeyError) as error:
            return self._without_statistics(error)

    def stats(self, mark: object) -> MemoryStats:
        """What was at a mark."""
        if isinstance(mark, MemoryStats):
            return mark
        look = cast(Look, mark)
        if look != self._newest[0]:  # most short batches are alike, and can be judged together where they share this
            self._newest = look, stats_of(look, self._events, native=self._native, splits=self._splits)
        return self._newest[1]

    def read_slow(self) -> SlowStats:
        """Host memory, and what the driver knows of the device."""
        slow = self._host.read_slow()
        if self._properties is None or self._unsupported:  # only `read` and `boundary` awake; this is another thread
            return slow
        index = self._index or 0
        before = self._reserved_bytes(index)
        known = self._read_driver(index)  # meanwhile the other thread may allocate, or flush the cache
        return replace(slow, **known, process_reserved_bytes=max(before, self._reserved_bytes(index)))

    def install(self) -> None:
        """Makes peaks measurable from now on, or from when the device is initialised."""
        self._installed = True
        self._live()

    def remove(self) -> None:
        """Ends the measuring of peaks; `PeakLedger` tells how long others are still served."""
        self._installed = False
        meter, self._meter = self._meter, None
        if meter is not None:
            meter.close()

    def empty_cache(self) -> int | None:
        """Gives the allocator's free segments back to the driver."""
        before = self.read().reserved_bytes
        if before is None:
            return None
        self._empty_cache()
        after = self.read().reserved_bytes
        return max(before - after, 0) if after is not None else None

    @abstractmethod
    def _initialized(self) -> bool:
        """Whether the user's program initialised the device, in this process; costs next to nothing."""

    @abstractmethod
    def _awake(self, index: int | None) -> tuple[int, Any]:
        """Called once after the initialisation: the number of the device and torch's properties of it."""

    @abstractmethod
    def _read_driver(self, index: int) -> dict[str, Any]:
        """The fields of SlowStats that this kind of device knows."""

    @abstractmethod
    def _reserved_bytes(self, index: int) -> int:
        """Reserved by PyTorch's allocator now."""

    @abstractmethod
    def _empty_cache(self) -> None:
        """Calls torch's own function."""

    def _without_statistics(self, error: Exception) -> MemoryStats:
        """There is no such device, or an allocator of the user's that does not count."""
        if not self._unsupported:
            self._unsupported = True
            logger.warning("memguard: %s:%s has no memory statistics: %s", self.kind, self._index, error)
        return _UNKNOWN

    def _live(self) -> bool:
        """Whether the device may be asked."""
        if self._unsupported or not self._initialized() or process.pid != self._pid:
            return False
        if self._properties is None:
            try:
                self._index, self._properties = self._awake(self._index)
            except (RuntimeError, AssertionError) as error:
                self._unsupported = True
                logger.warning("memguard: %s:%s cannot be watched: %s", self.kind, self._index, error)
                return False
        if self._meter is None and self._installed:
            self._meter = open_meter(self._peaks, self.ledger, self._index or 0)
        return True

    def _watched(self) -> Meter:
        """For a look while not installed, which must have no consequences."""
        return open_meter("off", self.ledger, self._index or 0)

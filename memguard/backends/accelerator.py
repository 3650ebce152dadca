"""Accelerators other than CUDA: Intel XPU, whose allocator counts like CUDA's, and Apple MPS, which knows no peaks.

Private names of torch (read in 2.15): ``_xpu_memoryStats``, ``_xpu_resetPeakMemoryStats``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, final

import torch

from memguard.backends.counters import Events, stats_of
from memguard.backends.host import HostMemory
from memguard.backends.interface import Backend
from memguard.backends.meters import MODES, Meter, open_meter
from memguard.backends.peaks import PeakLedger
from memguard.stats import MemoryStats, SlowStats

_READ, _RESET = "_xpu_memoryStats", "_xpu_resetPeakMemoryStats"
_LEDGER = PeakLedger(torch._C, (_READ, "_accelerator_getDeviceStats"), (_RESET, "_accelerator_resetPeakStats"))
_UNKNOWN = MemoryStats()


@final
class XpuBackend(Backend):
    """The memory of one Intel GPU as PyTorch's caching allocator counts it.

    Args:
        index: Number of the device; None is the current device once XPU was initialised.
        peaks: How per-batch peaks are measured, the option of that name.

    Raises:
        ValueError: `peaks` is not one of shared, exclusive, off.
    """

    def __init__(self, index: int | None = None, *, peaks: str = "shared") -> None:
        if peaks not in MODES:
            raise ValueError(f"peaks must be one of {', '.join(MODES)}, got {peaks!r}")
        self._index, self._peaks = index, peaks
        self._host = HostMemory()
        self._events = Events()
        self._meter: Meter | None = None
        self._properties: Any = None
        self._installed = False
        self._pid = os.getpid()

    @property
    def device(self) -> str:
        """``"xpu:0"``, or ``"xpu"`` while it is open which one."""
        self._live()
        return "xpu" if self._index is None else f"xpu:{self._index}"

    @property
    def name(self) -> str | None:
        """The product name, once XPU is initialised."""
        return self._properties.name if self._live() else None

    @property
    def total_bytes(self) -> int | None:
        """Capacity of the device, once XPU is initialised."""
        return int(self._properties.total_memory) if self._live() else None

    @property
    def measures_peaks(self) -> bool:
        """Unless they are switched off."""
        return self._peaks != "off"

    def read(self) -> MemoryStats:
        """One look."""
        return self._look(boundary=False)

    def boundary(self) -> MemoryStats:
        """One look and a new stretch."""
        return self._look(boundary=True)

    def read_slow(self) -> SlowStats:
        """Host memory, and the device's use by all where the driver tells it."""
        slow = self._host.read_slow()
        if not self._live():
            return slow
        total = int(self._properties.total_memory)
        try:
            free, total = torch.xpu.mem_get_info(self._index)
        except (AttributeError, RuntimeError):  # before torch 2.6, or a driver that does not tell
            return replace(slow, device_total_bytes=total)
        return replace(slow, device_total_bytes=total, device_used_bytes=total - free)

    def install(self) -> None:
        """Makes peaks measurable from now on, or from when XPU is initialised."""
        self._installed = True
        self._live()

    def remove(self) -> None:
        """Ends the measuring of peaks."""
        self._installed = False
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def empty_cache(self) -> int | None:
        """Gives the allocator's free segments back to the driver."""
        if not self._live():
            return None
        before = self.read().reserved_bytes
        torch.xpu.empty_cache()
        after = self.read().reserved_bytes
        return max(before - after, 0) if before is not None and after is not None else None

    def _look(self, *, boundary: bool) -> MemoryStats:
        if not self._live():
            return _UNKNOWN
        meter = self._meter or open_meter("off", torch._C, _LEDGER, (_READ, _RESET), self._index or 0)
        reading, peaks = meter.boundary() if boundary else meter.read()
        return stats_of(reading, peaks, self._events, native=True, splits=True)

    def _live(self) -> bool:
        """Whether the device may be asked: the user initialised XPU, here and not in a parent process."""
        if not torch.xpu.is_initialized() or os.getpid() != self._pid:  # type: ignore[no-untyped-call]
            return False
        if self._properties is None:
            if self._index is None:
                self._index = torch.xpu.current_device()
            self._properties = torch.xpu.get_device_properties(self._index)
        if self._meter is None and self._installed:
            self._meter = open_meter(self._peaks, torch._C, _LEDGER, (_READ, _RESET), self._index or 0)
        return True


@final
class MpsBackend(Backend):
    """The memory of Apple's GPU: what tensors take and what the driver holds for them; peaks are not counted.

    Args:
        mps: The module that answers, ``torch.mps``; tests bring their own.
    """

    def __init__(self, mps: Any = torch.mps) -> None:
        self._mps = mps
        self._host = HostMemory()
        self._pid = os.getpid()

    @property
    def device(self) -> str:
        """``"mps"``."""
        return "mps"

    @property
    def name(self) -> str | None:
        """Unknown: PyTorch does not tell."""
        return None

    @property
    def total_bytes(self) -> int | None:
        """What Metal recommends to use at most; Apple's GPU shares the host's memory."""
        recommended = getattr(self._mps, "recommended_max_memory", None)
        return int(recommended()) if recommended is not None else None

    @property
    def measures_peaks(self) -> bool:
        """No: MPS has no peak counters."""
        return False

    def read(self) -> MemoryStats:
        """One look; no peaks, no counters."""
        if os.getpid() != self._pid:
            return _UNKNOWN
        return MemoryStats(
            allocated_bytes=self._mps.current_allocated_memory(), reserved_bytes=self._mps.driver_allocated_memory()
        )

    def boundary(self) -> MemoryStats:
        """The same look."""
        return self.read()

    def read_slow(self) -> SlowStats:
        """Host memory."""
        return replace(self._host.read_slow(), device_total_bytes=self.total_bytes)

    def empty_cache(self) -> int | None:
        """Gives the allocator's free buffers back."""
        before = self._mps.driver_allocated_memory()
        self._mps.empty_cache()
        return max(int(before - self._mps.driver_allocated_memory()), 0)

"""Accelerators other than CUDA: Intel XPU, whose allocator counts like CUDA's, and Apple MPS, which knows no peaks.

Private names of torch (read in 2.15): ``_xpu_memoryStats``, ``_xpu_resetPeakMemoryStats``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, final

import torch

from memguard.backends.caching import CachingBackend
from memguard.backends.host import HostMemory
from memguard.backends.interface import Backend
from memguard.backends.peaks import PeakLedger
from memguard.records.stats import MemoryStats, SlowStats

_UNKNOWN = MemoryStats()


@final
class XpuBackend(CachingBackend):
    """One Intel GPU."""

    kind = "xpu"
    ledger = PeakLedger(
        torch._C,
        ("_accelerator_getDeviceStats", "_xpu_memoryStats"),  # the second tells four statistics only
        ("_xpu_resetPeakMemoryStats", "_accelerator_resetPeakStats"),
    )

    def _initialized(self) -> bool:
        return bool(torch.xpu.is_initialized())

    def _awake(self, index: int | None) -> tuple[int, Any]:
        if index is None:
            index = torch.xpu.current_device()
        self._native = False  # of splits and events, XPU's allocator keeps no count
        return index, torch.xpu.get_device_properties(index)

    def _read_driver(self, index: int) -> dict[str, Any]:
        total = int(self._properties.total_memory)
        try:
            free, total = torch.xpu.mem_get_info(index)
        except (AttributeError, RuntimeError):  # before torch 2.6, or a driver that does not tell
            return {"device_total_bytes": total}
        return {"device_total_bytes": total, "device_used_bytes": total - free}

    def _reserved_bytes(self, index: int) -> int:
        return int(torch.xpu.memory_reserved(index))

    def _empty_cache(self) -> None:
        torch.xpu.empty_cache()


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

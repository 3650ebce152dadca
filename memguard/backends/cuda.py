"""CUDA and ROCm devices: the caching allocator's own statistics, read once per boundary.

Nothing here touches the device before the user does: until ``torch.cuda.is_initialized()`` every number is unknown.
Private names of torch (checked with 2.13 and 2.15): ``_cuda_memoryStats``, ``_cuda_resetPeakMemoryStats``,
``_accelerator_getDeviceStats``, ``_accelerator_resetPeakStats``, ``_accelerator_getAllocatorSettings``.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any, final

import torch

from memguard.backends.counters import Events, stats_of
from memguard.backends.host import HostMemory
from memguard.backends.interface import Backend
from memguard.backends.meters import MODES, Meter, open_meter
from memguard.backends.nvml import NvmlDevice
from memguard.backends.peaks import PeakLedger
from memguard.stats import MemoryStats, SlowStats

logger = logging.getLogger("memguard")

_READ, _RESET = "_cuda_memoryStats", "_cuda_resetPeakMemoryStats"
_LEDGER = PeakLedger(torch._C, (_READ, "_accelerator_getDeviceStats"), (_RESET, "_accelerator_resetPeakStats"))
_UNKNOWN = MemoryStats()


@final
class CudaBackend(Backend):
    """The memory of one CUDA (or ROCm) device as PyTorch's caching allocator counts it.

    Args:
        index: Number of the device; None is the current device at the first look after CUDA was initialised.
        peaks: How per-batch peaks are measured, the option of that name.
        host: The process's own memory, for the slow lane.

    Raises:
        ValueError: `peaks` is not one of shared, exclusive, off.
    """

    def __init__(self, index: int | None = None, *, peaks: str = "shared", host: HostMemory | None = None) -> None:
        if peaks not in MODES:
            raise ValueError(f"peaks must be one of {', '.join(MODES)}, got {peaks!r}")
        self._index, self._peaks = index, peaks
        self._host = host if host is not None else HostMemory()
        self._events = Events()
        self._meter: Meter | None = None
        self._properties: Any = None
        self._nvml: NvmlDevice | None = None
        self._installed = False
        self._unsupported = False
        self._native = self._splits = True
        self._pid = os.getpid()

    @property
    def device(self) -> str:
        """``"cuda:0"``, or ``"cuda"`` while it is open which one."""
        self._live()
        return "cuda" if self._index is None else f"cuda:{self._index}"

    @property
    def name(self) -> str | None:
        """The product name, once CUDA is initialised."""
        return self._properties.name if self._live() else None

    @property
    def total_bytes(self) -> int | None:
        """Capacity of the device, once CUDA is initialised."""
        return int(self._properties.total_memory) if self._live() else None

    @property
    def limit_bytes(self) -> int | None:
        """What the allocator may take: the capacity times the per-process memory fraction."""
        if not self._live():
            return None
        fraction = (
            torch._C._cuda_getMemoryFraction(self._index or 0) if hasattr(torch._C, "_cuda_getMemoryFraction") else 1
        )
        return int(self._properties.total_memory * fraction)

    @property
    def measures_peaks(self) -> bool:
        """Unless they are switched off, or the allocator is one that does not count."""
        return self._peaks != "off" and not self._unsupported

    def read(self) -> MemoryStats:
        """One look; 15 us."""
        return self._look(boundary=False)

    def boundary(self) -> MemoryStats:
        """One look and a new stretch; 20 us."""
        return self._look(boundary=True)

    def read_slow(self) -> SlowStats:
        """Host memory, and the device's use by all processes."""
        slow = self._host.read_slow()
        if not self._live():
            return slow
        if self._nvml is None:
            self._nvml = NvmlDevice(self._properties)
        used = self._nvml.read()
        pinned, pinned_active = _pinned_bytes()
        if used.used_bytes is None and (free_total := _mem_get_info(self._index)) is not None:
            used = used._replace(used_bytes=free_total[1] - free_total[0])
        return replace(
            slow,
            device_total_bytes=int(self._properties.total_memory),
            device_used_bytes=used.used_bytes,
            process_used_bytes=used.process_bytes,
            other_processes=used.others,
            pinned_bytes=pinned,
            pinned_active_bytes=pinned_active,
        )

    def install(self) -> None:
        """Makes peaks measurable from now on, or from when CUDA is initialised."""
        self._installed = True
        self._live()

    def remove(self) -> None:
        """Ends the measuring of peaks; see `PeakLedger` for how long others are still served."""
        self._installed = False
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def empty_cache(self) -> int | None:
        """Gives the allocator's free segments back to the driver."""
        if not self._live():
            return None
        before = self.read().reserved_bytes
        torch.cuda.empty_cache()
        after = self.read().reserved_bytes
        return max(before - after, 0) if before is not None and after is not None else None

    def _look(self, *, boundary: bool) -> MemoryStats:
        if not self._live():
            return _UNKNOWN
        meter = self._meter
        if meter is None:  # not installed: a look must have no consequences
            meter = open_meter("off", torch._C, _LEDGER, (_READ, _RESET), self._index or 0)
        try:
            reading, peaks = meter.boundary() if boundary else meter.read()
        except RuntimeError as error:
            self._unsupported = True
            logger.warning("memguard: %s has no memory statistics (%s); they stay unknown.", self.device, error)
            return _UNKNOWN
        return stats_of(reading, peaks, self._events, native=self._native, splits=self._splits)

    def _live(self) -> bool:
        """Whether the device may be asked: the user initialised CUDA, here and not in a parent process."""
        if self._unsupported or not torch.cuda.is_initialized() or os.getpid() != self._pid:  # type: ignore[no-untyped-call]
            return False
        if self._properties is None:
            self._awake()
        if self._meter is None and self._installed:
            self._meter = open_meter(self._peaks, torch._C, _LEDGER, (_READ, _RESET), self._index or 0)
        return True

    def _awake(self) -> None:
        """The first look after CUDA was initialised."""
        if self._index is None:
            self._index = torch.cuda.current_device()
        self._properties = torch.cuda.get_device_properties(self._index)
        self._native = torch.cuda.get_allocator_backend() == "native"
        self._splits = "expandable_segments:true" not in _allocator_settings().lower()


def _allocator_settings() -> str:
    """The allocator's options as text, from torch where it tells them, else from the environment."""
    if hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        return str(torch._C._accelerator_getAllocatorSettings())
    variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    return ",".join(os.environ.get(name, "") for name in variables).replace(" ", "")


def _mem_get_info(index: int | None) -> tuple[int, int] | None:
    """Free and total bytes as the driver tells them; None where it does not."""
    try:
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError:
        return None
    return (free, total) if 0 <= free <= total else None


def _pinned_bytes() -> tuple[int | None, int | None]:
    """Bytes held, and bytes lent out, by the pinned-memory cache; its keys were renamed after torch 2.7."""
    if not hasattr(torch._C, "_cuda_hostMemoryStats"):
        return None, None
    stats = torch._C._cuda_hostMemoryStats()
    held, lent = (
        ("reserved_bytes", "allocated_bytes") if "reserved_bytes" in stats else ("allocated_bytes", "active_bytes")
    )
    return tuple(stats[key]["current"] if key in stats else None for key in (held, lent))  # type: ignore[return-value]

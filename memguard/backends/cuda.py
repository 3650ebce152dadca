"""CUDA and ROCm devices: the caching allocator's own statistics, read once per boundary.

Nothing here touches the device before the user does: until ``torch.cuda.is_initialized()`` every number is unknown.
Private names of torch (checked with 2.11, 2.13 and 2.15): ``_cuda_memoryStats``, ``_cuda_resetPeakMemoryStats``,
``_accelerator_getDeviceStats``, ``_accelerator_resetPeakStats``, ``_accelerator_getAllocatorSettings`` (not in 2.11),
``_cuda_getMemoryFraction``, ``_cuda_hostMemoryStats``; of torch.distributed ``_world.pg_backend_config``.
"""

from __future__ import annotations

import os
import sys
from typing import Any, final

import torch

from memguard.backends.caching import CachingBackend
from memguard.backends.nvml import NvmlDevice
from memguard.backends.peaks import PeakLedger


@final
class CudaBackend(CachingBackend):
    """One CUDA (or ROCm) device."""

    kind = "cuda"
    ledger = PeakLedger(
        torch._C,
        ("_cuda_memoryStats", "_accelerator_getDeviceStats"),
        ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"),
    )
    _nvml: NvmlDevice | None = None

    @property
    def limit_bytes(self) -> int | None:
        """The capacity, or the share of it that ``set_per_process_memory_fraction`` leaves to this process."""
        total = self.total_bytes
        if total is None or not hasattr(torch._C, "_cuda_getMemoryFraction"):
            return total
        return int(total * torch._C._cuda_getMemoryFraction(self._index or 0))

    def _initialized(self) -> bool:
        return bool(torch.cuda.is_initialized())

    def _awake(self, index: int | None) -> tuple[int, Any]:
        if index is None:
            index = torch.cuda.current_device()
        self._native = torch.cuda.get_allocator_backend() == "native"
        self._splits = "expandable_segments:true" not in allocator_settings()
        return index, torch.cuda.get_device_properties(index)

    def _read_driver(self, index: int) -> dict[str, Any]:
        if self._nvml is None:
            self._nvml = NvmlDevice(self._properties)
        use = self._nvml.read()
        held, lent = _pinned_bytes()
        return {
            "device_total_bytes": int(self._properties.total_memory),
            "device_used_bytes": use.used_bytes if use.used_bytes is not None else _used_bytes(index),
            "process_used_bytes": use.process_bytes,
            "other_processes": use.others,
            "process_groups": _process_groups(),
            "pinned_bytes": held,
            "pinned_active_bytes": lent,
        }

    def _reserved_bytes(self, index: int) -> int:
        return int(torch.cuda.memory_reserved(index))

    def _empty_cache(self) -> None:
        torch.cuda.empty_cache()


def allocator_settings() -> str:
    """The allocator's options as text, from torch where it tells them, else from the environment."""
    if hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        settings = str(torch._C._accelerator_getAllocatorSettings())
    else:
        variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
        settings = ",".join(os.environ.get(name, "") for name in variables)
    return settings.replace(" ", "").lower()


def _used_bytes(index: int) -> int | None:
    """In use by all processes, as the runtime tells it: where NVML is missing, as on ROCm."""
    try:
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError:  # the driver does not tell: unknown is None
        return None
    return total - free if 0 <= free <= total else None


def _process_groups() -> int | None:
    """Those that communicate with NCCL; None where the program made none, or torch does not tell."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    backends: dict[Any, str] | None = getattr(world, "pg_backend_config", None)
    return sum("nccl" in name for name in list(backends.values())) if backends else None


def _pinned_bytes() -> tuple[int | None, int | None]:
    """Bytes that the pinned-memory cache holds, and bytes it has lent out; the keys changed their names after 2.7."""
    if not hasattr(torch._C, "_cuda_hostMemoryStats"):
        return None, None
    stats: dict[str, Any] = torch._C._cuda_hostMemoryStats()
    old = "reserved_bytes" in stats
    held = stats.get("reserved_bytes" if old else "allocated_bytes", {})
    lent = stats.get("allocated_bytes" if old else "active_bytes", {})
    return held.get("current"), lent.get("current")

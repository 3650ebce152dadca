"""Use of a device by all processes, from the NVIDIA driver. Only for the slow lane.

torch's index counts what CUDA_VISIBLE_DEVICES leaves, NVML's counts all, so a device is found by UUID or PCI address.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple, final


class DeviceUse(NamedTuple):
    """Use of a device, in bytes; None is unknown."""

    used_bytes: int | None = None
    process_bytes: int | None = None
    others: tuple[tuple[int, int | None], ...] | None = None


@final
class NvmlDevice:
    """One device in NVML, matched to torch's properties of it; answers with unknowns where NVML is missing.

    Args:
        properties: What ``torch.cuda.get_device_properties`` returns.
        nvml: The ``pynvml`` module; None imports it.
    """

    def __init__(self, properties: Any, nvml: Any = None) -> None:
        self._nvml = nvml if nvml is not None else _import_pynvml()
        self._handle: Any = None
        if self._nvml is not None and _starts(self._nvml):
            self._handle = _find(self._nvml, properties)

    def read(self) -> DeviceUse:
        """Bytes in use by all, by this process, and by each other process.

        A container hides processes or shows them under other numbers. Where this process is not in the list, though
        it surely uses the device, nothing in the list can be trusted to be another's.
        """
        if self._handle is None:
            return DeviceUse()
        used = None
        if (memory := _ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)) is not None:
            used = memory.used if 0 <= memory.used <= memory.total else None  # WSL has told absurd numbers
        processes = _processes(self._nvml, self._handle)
        if os.getpid() not in processes:
            return DeviceUse(used)
        mine = processes.pop(os.getpid())
        return DeviceUse(used, mine, tuple(sorted(processes.items())))


def _import_pynvml() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the deprecated package of that name warns on import
            import pynvml
    except Exception:  # missing, or broken at import
        return None
    return pynvml


def _starts(nvml: Any) -> bool:
    try:
        nvml.nvmlInit()
    except Exception:  # no driver, no library, or one that does not match
        return False
    return True


def _find(nvml: Any, properties: Any) -> Any:
    """The NVML handle of torch's device; None where none fits."""
    uuid = getattr(properties, "uuid", None)
    candidates = [f"MIG-{uuid}", f"GPU-{uuid}"] if uuid is not None else []
    # A process sees one MIG slice only, and older drivers report its parent's UUID: trust the variable.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if visible.startswith("MIG-"):
        candidates.insert(0, visible)
    handle = None
    for candidate in candidates:
        if (handle := _ask(nvml.nvmlDeviceGetHandleByUUID, candidate)) is not None:
            break
    if handle is None and hasattr(properties, "pci_bus_id"):
        address = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        handle = _ask(nvml.nvmlDeviceGetHandleByPciBusId, address)
    return None if handle is None or _is_divided(nvml, handle) else handle


def _is_divided(nvml: Any, handle: Any) -> bool:
    """Whether a handle is a whole GPU that is cut into MIG slices: its numbers are not those of our slice."""
    if _ask(nvml.nvmlDeviceIsMigDeviceHandle, handle):
        return False
    mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    return mode is not None and bool(mode[0])


def _processes(nvml: Any, handle: Any) -> dict[int, int | None]:
    """Bytes by process id, of compute and graphics clients alike."""
    processes: dict[int, int | None] = {}
    for list_processes in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _ask(list_processes, handle) or ():
            nbytes = process.usedGpuMemory
            processes[process.pid] = max(nbytes or 0, processes.get(process.pid) or 0) or None
    return processes


def _ask(function: Any, *arguments: Any) -> Any:
    """The function's answer; None where it has none to give.

    Every kind of exception means that: besides NVMLError, pynvml raises others where driver and binding do not match.
    """
    try:
        return function(*arguments)
    except Exception:
        return None

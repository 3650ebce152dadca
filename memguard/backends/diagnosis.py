"""What the devices of this environment let memguard measure, in words, for `memguard doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from memguard.text.units import format_bytes


def devices() -> Iterator[str]:
    """What each device of this environment lets memguard measure, a line each."""
    try:
        import torch
    except ImportError as error:
        yield f"nothing on a device: torch cannot be imported ({error})"
        return
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield (
                f"cuda:{index}: {properties.name}, {format_bytes(properties.total_memory)}: allocated, reserved and "
                "their true peaks in every batch, retries, out-of-memory reports"
            )
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            yield f"the allocator is {backend}: it keeps few statistics, most numbers will be unknown"
    elif torch.backends.cuda.is_built():
        yield "no GPU: this PyTorch is built for CUDA, but finds no device (no driver? CUDA_VISIBLE_DEVICES empty?)"
    else:
        yield "no GPU: this PyTorch is built for the CPU alone"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        yield "xpu: allocated, reserved and their peaks"
    if torch.backends.mps.is_available():
        yield "mps: allocated bytes at the ends of batches; MPS reports no peaks"
    yield "virtual:SIZE, as in virtual:24GiB: everything a CUDA device reports, simulated exactly, on any machine"


def hints() -> Iterator[str]:
    """What stands in the way of measuring the devices, or of using them alone."""
    try:
        import torch

        available = torch.cuda.is_available()
    except ImportError:
        yield "torch is not importable here: reports and the Memory tab work, guarding does not"
        return
    if not available:
        return
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        yield (
            "nvidia-ml-py is not installed: memory of other processes on the device stays unknown; it comes with "
            "torch-memguard[nvidia]"
        )
        return
    except Exception as error:
        yield f"NVML does not answer ({error}): memory of other processes on the device stays unknown"
        return
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        others = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
        for process in others[:4]:
            held = format_bytes(process.usedGpuMemory) if process.usedGpuMemory else "an unknown amount"
            yield f"another process is on the NVIDIA GPU {index}: pid {process.pid} holds {held}"

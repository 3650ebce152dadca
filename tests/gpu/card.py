"""The GPU under test, and what tests do with it that only silicon can: keep it busy, take much of it."""

from __future__ import annotations

import gc
import os

import torch

IS_REAL = torch.cuda.is_available() and torch.cuda.get_device_name() != "Null GPU"
REHEARSES = os.environ.get("MEMGUARD_GPU_REHEARSAL") == "1"
"""Whether the null GPU may take part: whoever writes these tests has no other."""
CYCLES_PER_SECOND = 1_500_000_000
"""Fewer than today's chips do, so that what is busy for a second by this figure may be so for a little less."""


def total_bytes() -> int:
    """Memory of the card."""
    return int(torch.cuda.get_device_properties(0).total_memory)


def keep_busy(seconds: float) -> None:
    """Gives the current stream about so much to do, without any memory."""
    torch.cuda._sleep(int(seconds * CYCLES_PER_SECOND))


def block(nbytes: int) -> torch.Tensor:
    """Memory without contents."""
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def clean() -> None:
    """The allocator as a new process has it."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.set_per_process_memory_fraction(1.0)
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
        torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.reset_peak_memory_stats()


def line_of(file: str, mark: str) -> int:
    """Number of the line of a file that ends with a mark."""
    with open(file) as lines:
        (number,) = [n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}")]
    return number

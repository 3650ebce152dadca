"""The GPU under test, and what tests do with it that only silicon can: keep it busy, take much of it."""

from __future__ import annotations

import os

import torch

from tests.cuda import conftest

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
    torch.cuda.synchronize()
    conftest.clean()


def line_of(file: str, mark: str) -> int:
    """Number of the line of a file that ends with a mark."""
    with open(file) as lines:
        (number,) = [n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}")]
    return number

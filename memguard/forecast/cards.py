"""The common GPUs: what PyTorch sees of their memory, and what a process needs of it before the first tensor.

Capacities are those of ``torch.cuda.get_device_properties().total_memory``, which drivers and ECC settings change by
about one per cent. The context is what a process holds outside PyTorch's allocator: CUDA's context, loaded kernels and
libraries. It depends on the driver and grows as kernels load, so it is a range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from memguard.text.units import GIB, MIB, format_bytes, parse_bytes

_SMALL_CHIP, _LARGE_CHIP = 60, 100
"""Streaming multiprocessors: below the first a chip is small, from the second on it is large."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU model, or a bare amount of memory."""

    name: str
    """As it is asked for: ``"nvidia-h200"``."""
    title: str
    """As people write it."""
    total_bytes: int
    compute_capability: tuple[int, int]
    multiprocessors: int
    """Number of streaming multiprocessors: decides the scratch memory of large reductions."""
    threads_per_multiprocessor: int = 2048
    context_bytes: tuple[int, int, int] = (0, 0, 0)
    """Low, typical, high."""
    cudnn_workspaces: bool = True
    """False where convolutions are taken to need no memory of their own: an imitated GPU, and AMD's."""
    amd: bool = False
    """AMD's GPUs have the same allocator and other libraries, whose workspaces are known less well."""
    exact_model: bool = True
    """False for a bare amount of memory, whose compute capability is an assumption."""

    @property
    def usable_bytes(self) -> int:
        """What is left for PyTorch beside a typical context."""
        return self.total_bytes - self.context_bytes[1]


def context_of(capability: tuple[int, int], multiprocessors: int) -> tuple[int, int, int]:
    """What a process holds outside PyTorch's allocator on such a chip: low, typical, high, in bytes.

    It grows with the chip. Measured on an H200 (driver 580.159.04, CUDA 13.0, torch 2.11.0, cuDNN 9.19): 619 MiB with
    the first tensor, 749 with cuBLAS, 767 with cuDNN. Published runs on an RTX 4060 (CUDA 12.4, torch 2.6) filled all
    but 107 MiB of what the driver reports. Reports since CUDA 11.7 (lazy loading): 200 to 700 MiB on chips between.
    """
    if capability >= (9, 0) and multiprocessors >= _LARGE_CHIP:
        low, typical, high = 600, 770, 1000
    elif multiprocessors < _SMALL_CHIP:
        low, typical, high = 90, 120, 300
    else:
        low, typical, high = (200, 350, 700) if multiprocessors < _LARGE_CHIP else (300, 520, 800)
    return low * MIB, typical * MIB, high * MIB


def _card(
    name: str,
    title: str,
    gib: float,
    capability: tuple[int, int],
    multiprocessors: int,
    threads: int = 2048,
    *,
    amd: bool = False,
) -> Card:
    return Card(
        name=name,
        title=title,
        total_bytes=int(gib * GIB),
        compute_capability=capability,
        multiprocessors=multiprocessors,
        threads_per_multiprocessor=threads,
        context_bytes=context_of(capability, multiprocessors),
        cudnn_workspaces=not amd,
        amd=amd,
    )


CARDS: Final = (
    _card("nvidia-gtx-1080-ti", "GeForce GTX 1080 Ti", 10.91, (6, 1), 28),
    _card("nvidia-p100-16gb", "Tesla P100 16 GB", 15.89, (6, 0), 56),
    _card("nvidia-v100-16gb", "Tesla V100 16 GB", 15.77, (7, 0), 80),
    _card("nvidia-v100-32gb", "Tesla V100 32 GB", 31.74, (7, 0), 80),
    _card("nvidia-t4", "Tesla T4", 14.56, (7, 5), 40, 1024),
    _card("nvidia-rtx-2080-ti", "GeForce RTX 2080 Ti", 10.75, (7, 5), 68, 1024),
    _card("nvidia-rtx-3050", "GeForce RTX 3050 8 GB", 7.78, (8, 6), 20, 1536),
    _card("nvidia-rtx-3060", "GeForce RTX 3060 12 GB", 11.76, (8, 6), 28, 1536),
    _card("nvidia-rtx-3070", "GeForce RTX 3070", 7.78, (8, 6), 46, 1536),
    _card("nvidia-rtx-3080", "GeForce RTX 3080 10 GB", 9.77, (8, 6), 68, 1536),
    _card("nvidia-rtx-3090", "GeForce RTX 3090", 23.69, (8, 6), 82, 1536),
    _card("nvidia-a10g", "A10G", 22.06, (8, 6), 80, 1536),
    _card("nvidia-rtx-a6000", "RTX A6000", 47.53, (8, 6), 84, 1536),
    _card("nvidia-a100-40gb", "A100 40 GB", 39.39, (8, 0), 108),
    _card("nvidia-a100-80gb", "A100 80 GB", 79.15, (8, 0), 108),
    _card("nvidia-l4", "L4", 22.03, (8, 9), 58, 1536),
    _card("nvidia-l40s", "L40S", 44.40, (8, 9), 142, 1536),
    _card("nvidia-rtx-4060", "GeForce RTX 4060 8 GB", 7.75, (8, 9), 24, 1536),
    _card("nvidia-rtx-4060-ti-16gb", "GeForce RTX 4060 Ti 16 GB", 15.59, (8, 9), 34, 1536),
    _card("nvidia-rtx-4070", "GeForce RTX 4070 12 GB", 11.60, (8, 9), 46, 1536),
    _card("nvidia-rtx-4080", "GeForce RTX 4080", 15.70, (8, 9), 76, 1536),
    _card("nvidia-rtx-4090", "GeForce RTX 4090", 23.64, (8, 9), 128, 1536),
    _card("nvidia-h100", "H100 80 GB", 79.18, (9, 0), 132),
    _card("nvidia-gh200", "GH200 96 GB", 94.50, (9, 0), 132),
    _card("nvidia-h200", "H200", 139.80, (9, 0), 132),
    _card("nvidia-b200", "B200", 178.35, (10, 0), 148),
    _card("nvidia-gb200", "GB200", 184.50, (10, 0), 148),
    _card("nvidia-rtx-5060", "GeForce RTX 5060 8 GB", 7.53, (12, 0), 30, 1536),
    _card("nvidia-rtx-5060-ti-16gb", "GeForce RTX 5060 Ti 16 GB", 15.48, (12, 0), 36, 1536),
    _card("nvidia-rtx-5070", "GeForce RTX 5070 12 GB", 11.50, (12, 0), 48, 1536),
    _card("nvidia-rtx-5070-ti", "GeForce RTX 5070 Ti", 15.47, (12, 0), 70, 1536),
    _card("nvidia-rtx-5080", "GeForce RTX 5080", 15.47, (12, 0), 84, 1536),
    _card("nvidia-rtx-5090", "GeForce RTX 5090", 31.36, (12, 0), 170, 1536),
    _card("amd-mi300x", "Instinct MI300X", 191.98, (9, 4), 304, amd=True),
    _card("amd-mi325x", "Instinct MI325X", 255.98, (9, 4), 304, amd=True),
)
"""By maker, oldest first."""


def find_card(device: str | int) -> Card:
    """The GPU that a text names: a card, in any usual spelling, or an amount of memory like ``"24GiB"``.

    A bare amount is all PyTorch's: nothing is taken off for a context. Its compute capability is taken to be 8.0.

    Raises:
        ValueError: Neither a card nor an amount.
    """
    if isinstance(device, int):
        device = str(device)
    wanted = _plain(device)
    for card in CARDS:
        if wanted in (_plain(card.name), _plain(card.name.partition("-")[2]), _plain(card.title)):
            return card
    shorter = [card for card in CARDS if wanted and wanted in _plain(card.name)]
    if len(shorter) == 1:
        return shorter[0]
    size = device.removeprefix("virtual:")
    try:
        total = parse_bytes(size)
    except ValueError as error:
        if size.strip().isdecimal():
            raise ValueError(f"device: {error}") from None
        names = ", ".join(card.name for card in CARDS)
        raise ValueError(f"{device!r} is neither a size like 24GiB nor a known card; known are {names}") from None
    return Card(
        name=device,
        title=f"a GPU with {format_bytes(total)}",
        total_bytes=total,
        compute_capability=(8, 0),
        multiprocessors=108,
        exact_model=False,
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())

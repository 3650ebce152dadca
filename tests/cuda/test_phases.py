"""Phases on the real allocator: their peaks, and what everybody else reads of the counters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard

MIB = 2**20


def bracketed(work: Callable[[], object]) -> tuple[int, int]:
    """The peaks that brackets placed by hand tell of some work."""
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def training(guarded: bool, folder: Path) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """What brackets around three parts of a loop read, what phases around them recorded, and the last peak."""
    phase: Callable[[str], Any] = memguard.phase if guarded else lambda name: nullcontext()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    kept: list[torch.Tensor] = []
    read: list[tuple[int, int]] = []

    def rollout() -> None:
        with phase("rollout"), torch.no_grad():
            cache = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
            kept.append(model(torch.zeros(512, 256, device="cuda")))
            del cache

    def update() -> None:
        with phase("update"):
            for _ in range(4):
                with phase("backward"):
                    model(torch.zeros(1024, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    def loop() -> None:
        spike = torch.empty(90 * MIB, dtype=torch.uint8, device="cuda")
        del spike
        read.extend(map(bracketed, (rollout, update, rollout)))

    recorded: list[tuple[int, int]] = []
    if guarded:
        with memguard.watch(model, optimizer, device="cuda:0", logdir=folder, quiet=True) as guard:
            loop()
        rows = guard.session.recorder.phases.totals
        assert (rows["rollout"].times, rows["update"].times, rows["update > backward"].times) == (2, 1, 4)
        recorded = [
            (row.allocated_peak_bytes or 0, row.reserved_peak_bytes or 0)
            for row in (rows["rollout"], rows["update"], rows["update > backward"])
        ]
    else:
        loop()
    return read, recorded, torch.cuda.max_memory_allocated()


def test_peaks_are_those_of_brackets_placed_by_hand(tmp_path: Path, fresh: Callable[[], None]) -> None:
    """A phase tells what reset_peak_memory_stats and max_memory_allocated around it tell, and both stay right."""
    guarded, recorded, last = training(True, tmp_path)
    fresh()
    plain, _, plain_last = training(False, tmp_path)
    assert guarded == plain
    assert last == plain_last
    assert recorded[0] == max(plain[0], plain[2])
    assert recorded[1] == plain[1]
    assert recorded[2][0] <= plain[1][0]


def test_a_phase_resets_nothing_for_others(tmp_path: Path) -> None:
    """A script that reads the peak of all its training still gets it."""
    with memguard.watch(device="cuda:0", logdir=tmp_path, quiet=True):
        before = torch.cuda.memory_allocated()
        spike = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        del spike
        with memguard.phase("small"):
            small = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.max_memory_allocated() == before + 64 * MIB
    assert torch.cuda.max_memory_allocated() == before + 64 * MIB
    del small


@pytest.mark.parametrize("peaks", ["exclusive", "off"])
def test_other_ways_to_measure_peaks(peaks: str, tmp_path: Path) -> None:
    """Alone, a phase has its peak; where peaks are never reset, at least no wrong one."""
    with memguard.watch(device="cuda:0", logdir=tmp_path, quiet=True, peaks=peaks) as guard:
        before = torch.cuda.memory_allocated()
        with memguard.phase("first"):
            large = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
            del large
        with memguard.phase("second"):
            small = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
            del small
    rows = guard.session.recorder.phases.totals
    assert rows["first"].allocated_peak_bytes == before + 64 * MIB
    assert rows["second"].allocated_peak_bytes == (before + 2 * MIB if peaks == "exclusive" else None)

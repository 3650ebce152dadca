"""The peak of each batch, with what cuDNN and cuBLAS take for themselves while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

import memguard
from memguard.records.stats import Stage
from tests.gpu.models import images, resnet

SIZES = [16, 16, 48, 8, 8, 32, 64, 24, 16, 40, 8, 56]


def train(each: Callable[[], None], logdir: Path | None) -> list[int | None]:
    """ResNet-18 on batches of changing size; the peaks as memguard recorded them, if it was there."""
    torch.manual_seed(3)
    net = resnet().cuda()
    optimizer = torch.optim.AdamW(net.parameters())

    def step(size: int) -> None:
        x, y = images(size)
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    if logdir is None:
        for size in SIZES:
            step(size)
            each()
        return []
    with memguard.watch(net, optimizer, device="cuda:0", logdir=logdir, quiet=True) as guard:
        for size in guard.batches(SIZES):
            step(size)
    return [record.allocated_peak_bytes for record in guard.records if record.stage is Stage.TRAIN]


def test_records_have_the_peaks_of_a_twin_that_resets_by_hand(fresh: Callable[[], None], tmp_path: Path) -> None:
    """To the byte, workspaces of convolutions included."""
    expected: list[int] = []

    def read() -> None:
        expected.append(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    train(lambda: None, None)  # what libraries take once is there from here on
    fresh()
    train(read, None)
    fresh()
    assert train(lambda: None, tmp_path) == expected
    assert len(expected) == len(SIZES) and len(set(expected)) > 4


def test_the_users_own_peak_is_that_of_the_whole_run(fresh: Callable[[], None], tmp_path: Path) -> None:
    """Though memguard resets the counters for each batch."""
    train(lambda: None, None)
    fresh()
    train(lambda: None, None)
    expected = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    fresh()
    recorded = train(lambda: None, tmp_path)
    assert (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) == expected
    assert max(peak or 0 for peak in recorded) <= expected[0]

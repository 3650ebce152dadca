"""memguard holds no tensor: on the virtual GPU, every batch ends with the bytes it ends with without it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.backends.virtual import VirtualBackend
from memguard.text.units import GIB


def ends(guarded: bool, logdir: Path, count: int = 500) -> list[int]:
    """Allocated bytes at the end of each batch of a program with faults that are found and named."""
    torch.manual_seed(0)
    gc.collect()
    backend = VirtualBackend(GIB)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    history: list[Any] = []
    allocated: list[int] = []
    backend.install()
    try:
        with memguard.watch(model, optimizer, logdir=logdir, quiet=True, device="cpu") as guard:
            if not guarded:
                guard.close()
            for number in range(count):
                x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
                output = model(x)
                loss = functional.cross_entropy(output, y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if number < 100:
                    history.append(loss)  # a fault that is found: graphs of earlier batches
                elif number == 200:
                    history.clear()
                elif number % 50 == 0:
                    try:
                        model(torch.randn(16, 9))
                    except RuntimeError:
                        pass
                if number % 20 == 0:
                    model.eval()
                    model(x)
                    model.train()
                del x, y, output, loss
                gc.collect(0)
                allocated.append(backend.read().allocated_bytes or 0)
            findings = {finding.code for finding in guard.findings}
    finally:
        backend.remove()
    assert ("MG101" in findings) == guarded
    return [value - allocated[0] for value in allocated]


def test_every_batch_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Through findings, failed forwards, guarded evaluation and 500 batches."""
    truth = ends(False, tmp_path / "a")
    assert ends(True, tmp_path / "b") == truth
    assert len(set(truth)) > 50


@pytest.mark.parametrize("count", [50])
def test_a_batch_takes_128_bytes_on_disk(count: int, tmp_path: Path) -> None:
    """The recording grows by one record a batch."""
    from tests.chaos.training import train, watched

    train(watched(tmp_path, device="cpu"), count=count)
    (path,) = (tmp_path / "memguard").glob("*.bin")
    assert path.stat().st_size == 4096 + 128 * 2 * (count + 2)

"""The host comes through watched batches while the GPU is still at the first of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import memguard
from tests.gpu.card import IS_REAL, keep_busy

WARM_UP, WATCHED = 6, 20
BUSY_SECONDS = 4.0
"""Far more than the host needs for its batches and for naming what is kept, on any machine."""


def test_the_host_is_through_long_before_the_gpu(tmp_path: Path) -> None:
    """A leak is found and named, and evaluation is guarded, and not once did anybody wait for the device."""
    with torch.device("cuda"):
        net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
        x, y = torch.ones(16, 64), torch.zeros(16, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []

    def batch() -> None:
        loss = functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(loss)  # LEAK

    with memguard.watch(net, optimizer, device="cuda:0", logdir=tmp_path, quiet=True, log_every=2) as guard:
        for _ in range(WARM_UP):  # kernels are loaded, and segments are there
            batch()
        net.eval()
        net(x)
        net.train()
        torch.cuda.synchronize()
        done = torch.cuda.Event()
        keep_busy(BUSY_SECONDS)
        done.record()
        for _ in range(WATCHED):
            batch()
        net.eval()
        net(x)
        behind = not done.query()
    still_behind = not done.query()
    torch.cuda.synchronize()
    assert done.query()
    assert (behind and still_behind) or not IS_REAL
    assert "MG101" in {finding.code for finding in guard.findings}
    assert len(guard.records) >= WARM_UP + WATCHED

"""The host never waits for the device on memguard's behalf."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


def training(logdir: Path) -> Any:
    """Batches with a leak that is found and named, and evaluation that forgot no_grad; nothing in it waits."""
    with torch.device("cuda"):  # made there: copies to the device would wait
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.ones(16, 64, device="cuda"), torch.zeros(16, 8, device="cuda")
    kept = []
    with memguard.watch(model, optimizer, logdir=logdir, quiet=True, log_every=2, empty_cache="never") as guard:
        for number in range(40):
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(loss)
            if number % 10 == 9:
                model.eval()
                model(x)
                model.train()
    return guard


def test_no_batch_and_no_finding_waits_for_the_device(
    fresh: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way to wait is watched: torch's own check of copies and .item(), and each call that synchronises."""
    waits: list[str] = []

    def waiting(name: str, real: Any) -> Any:
        def wait(*args: Any, **kwargs: Any) -> Any:
            waits.append(name)
            return real(*args, **kwargs)

        return wait

    for owner, name in (
        (torch.cuda, "synchronize"),
        (torch.accelerator, "synchronize"),
        (torch._C, "_cuda_synchronize"),
        (torch.cuda.Stream, "synchronize"),
        (torch.cuda.Event, "synchronize"),
    ):
        monkeypatch.setattr(owner, name, waiting(name, getattr(owner, name)))
    torch.cuda.set_sync_debug_mode("error")
    try:
        guard = training(tmp_path)
        assert waits == []
        with pytest.raises(RuntimeError, match="synchroniz"):
            torch.ones(1, device="cuda").item()  # the check can fail
        torch.cuda.synchronize()
        assert waits == ["synchronize", "_cuda_synchronize"]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {"MG101", "MG201"} <= {finding.code for finding in guard.findings}
    assert len(guard.records) >= 40

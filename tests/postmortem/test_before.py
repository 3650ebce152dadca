"""Before it happens: on a virtual GPU the rules say how far away an out-of-memory error is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.guard import Guard
from tests.postmortem.unseen.leaks import kept_predictions
from tests.postmortem.unseen.states import ema_and_adam

SIZE = r"\d[\d.]* ([KMG]iB|bytes)"


def flushing(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Every batch is a little larger than the last, whose block is in the way."""
    model = nn.Linear(8, 8)
    guard.add(model)
    for mib in guard.batches(range(16, 28, 2)):
        model(torch.zeros(8, 8)).sum().backward()
        torch.zeros(mib << 20, dtype=torch.uint8)


def said(guard: Guard, code: str) -> str:
    [message] = [finding.message for finding in guard.findings if finding.code == code]
    return message


@pytest.mark.parametrize(
    ("code", "program", "total", "pattern"),
    [
        ("MG402", flushing, "30MiB", rf"at the peak {SIZE} of 30\.0 MiB are left"),
        ("MG502", ema_and_adam, "36MiB", rf"the first AdamW step will allocate {SIZE} of state.*: {SIZE} too little"),
        ("MG504", kept_predictions, "16MiB", rf"at the peak {SIZE} of 16\.0 MiB are left"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_how_far_away(code: str, program: Any, total: str, pattern: str, tmp_path: Path) -> None:
    """In bytes, where the run's own numbers tell it."""
    guard = memguard.watch(device=f"virtual:{total}", logdir=str(tmp_path), quiet=True)
    try:
        with guard:
            program(guard, "cpu", None, 1)
    except torch.OutOfMemoryError:
        pass
    assert re.search(pattern, said(guard, code)), said(guard, code)

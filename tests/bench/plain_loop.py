"""What watching a plain loop costs a batch: ``python -m tests.bench plain_loop``.

Processor time of the whole process, our slow lane's thread included, so that a busy machine changes it little. How far
it changes it all the same, the loop without memguard tells: measured once more, against itself.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import tempfile
import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.integrations.guard import Guard
from tests.bench.rows import BARE, Row, microseconds_over_bare

WARM_UP = 80
"""Batches before the measured ones; after 64, probes are sampled."""
BATCHES, TURNS = 2000, 9
"""Half a second in each turn: what the slow lane and the writer's thread take to begin is not a batch's."""
WIDTH = 32
AGAIN = "bare again"


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch beside the same loop without memguard."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = [BARE, "all", "default", "none", "disabled", AGAIN, *(["virtual"] if device == "cpu" else [])]
    intervals: list[int] = []
    costs = microseconds_over_bare(
        {name: functools.partial(_seconds, name, device, intervals) for name in names}, 3 if quick else TURNS
    )
    rows = [
        Row("plain loop, a batch without memguard", costs[BARE], "us"),
        Row("watch, all probes on every batch", costs["all"], "us/batch", 60.0),
        Row("watch, defaults (probes sampled after 64 batches)", costs["default"], "us/batch", 15.0),
        Row("watch, defaults: looked at is one batch in", statistics.median(intervals), "batches"),
        Row("watch, no probes", costs["none"], "us/batch", 5.0),
        Row("watch, MEMGUARD_DISABLE=1", costs["disabled"], "us/batch"),
        Row("the loop without memguard against itself: how exact this is", costs[AGAIN], "us/batch"),
    ]
    if "virtual" in costs:
        rows.append(Row("watch, defaults on a virtual GPU, its simulation included", costs["virtual"], "us/batch"))
    return rows


def _seconds(variant: str, device: str, intervals: list[int]) -> float:
    """Processor seconds a batch; notes how rarely memguard looked closely at its defaults."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if variant in (BARE, AGAIN):
        return _loop(model, optimizer, device)
    with _watching(variant, model, optimizer) as guard:
        seconds = _loop(model, optimizer, device)
        if variant == "default":
            intervals.append(guard.session.probes.pace.interval)
    return seconds


@contextlib.contextmanager
def _watching(variant: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Guard]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if variant == "disabled":
            patch.setenv("MEMGUARD_DISABLE", "1")
        elif variant == "all":
            patch.setattr("memguard.probes.pace.FIRST_BATCHES", 1 << 60)
        device = "virtual:24GiB" if variant == "virtual" else "auto"
        with memguard.watch(model, optimizer, logdir=folder, quiet=True, device=device) as guard:
            if variant == "none":
                guard.session.probes.remove()
            yield guard


def _loop(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> float:
    inputs, targets = torch.ones(8, WIDTH, device=device), torch.zeros(8, 1, device=device)
    began = 0.0
    for batch in range(WARM_UP + BATCHES):
        if batch == WARM_UP:
            began = time.process_time()
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return (time.process_time() - began) / BATCHES

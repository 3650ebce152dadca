"""What memguard costs where it matters, on a step of 30 ms: ``python -m tests.bench long_step``.

Small benchmarks flatter: code that runs every 300 microseconds stays in the processor's caches. Here each step sleeps
most of its time and walks through a large buffer, so that memguard's code is as cold as between real steps. Processor
time of the whole process; sleeping costs none.

Two times are told: that of a run's first batches, in which memguard spends what it may spend at once on looking, and
that of all the hours afterwards, when looks are as rare as their cost demands.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from tests.bench.rows import BARE, Row, microseconds_over_bare

STEP_SECONDS = 0.03
SLEEP_SECONDS = 0.024
BUFFER_BYTES = 8 << 20
WARM_UP, BATCHES, TURNS = 70, 130, 7
LATER = 2200
"""Short batches after which looks are as rare as they become."""
ROUNDS_OVER = 230
"""Looks after which those over everything in reach, made a few times in a run, are over: they would drown the rest."""
LAYERS, WIDTH = 8, 64


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch, and their share of the step."""
    torch.set_num_threads(1)
    names = (BARE, "defaults", "defaults, later on", "all probes on every batch")
    variants = {name: functools.partial(_seconds, name) for name in names}
    costs = microseconds_over_bare(variants, 2 if quick else TURNS)
    rows = [Row("a step of 30 ms without memguard, processor time", costs[BARE], "us/batch")]
    for name, aim in zip(names[1:], (None, 0.1, 0.2), strict=True):
        rows.append(Row(f"a step of 30 ms, {name}", costs[name], "us/batch"))
        rows.append(Row(f"a step of 30 ms, {name}: share", costs[name] / STEP_SECONDS / 1e4, "%", aim))
    return rows


def _seconds(variant: str) -> float:
    """Processor seconds a batch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if variant.startswith("all"):
            patch.setattr("memguard.probes.pace.FIRST_BATCHES", 1 << 60)
        guarding = memguard.watch(model, optimizer, logdir=folder, quiet=True)
        with contextlib.nullcontext() if variant == BARE else guarding:
            return _loop(model, optimizer, device, _warm_up(variant))


def _warm_up(variant: str) -> int:
    if variant.startswith("all"):
        return ROUNDS_OVER
    return LATER if variant.endswith("later on") else WARM_UP


def _loop(model: nn.Module, optimizer: torch.optim.Optimizer, device: str, warm_up: int) -> float:
    inputs, targets = torch.ones(8, WIDTH, device=device), torch.zeros(8, 1, device=device)
    buffer = bytearray(BUFFER_BYTES)
    began = 0.0
    for batch in range(warm_up + BATCHES):
        if batch == warm_up:
            began = time.process_time()
        if batch >= warm_up:
            time.sleep(SLEEP_SECONDS)
            bytes(buffer)  # pushes everything else out of the caches
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return (time.process_time() - began) / BATCHES

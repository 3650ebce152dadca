"""What memguard costs where it matters, on a step of 30 ms: ``python -m tests.bench long_step``.

Small benchmarks flatter: code that runs every 300 microseconds stays in the processor's caches. Here each step sleeps
most of its time and walks through a large buffer, so that memguard's code is as cold as between real steps.

Within one run the hooks are taken out every few batches and put back after as many: processor time of the training
thread, the median of the spans' differences, of their medians and of their means. What the slow lane's thread takes
besides is told by itself. Beside memguard stand the floors: hooks on model and optimizer that do nothing, and the least
that keep a record of each batch.

Two times are told: that of a run's first batches, in which memguard spends what it may spend at once on looking, and
that of all the hours afterwards, when looks are as rare as their cost demands.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.backends.choose import choose_backend
from tests.bench.peers import LeastHooks
from tests.bench.rows import Row
from tests.bench.taken_out import middle, taken_out

STEP_SECONDS = 0.03
SLEEP_SECONDS = 0.024
BUFFER_BYTES = 8 << 20
SPAN, SPANS = 6, 60
EDGE = 1
"""The first batch after a change is left out: what it changed is still in the caches."""
WARM_UP = 70
LATER = 2200
"""Short batches after which looks are as rare as they become."""
ROUNDS_OVER = 230
"""Looks after which those over everything in reach, made a few times in a run, are over: they would drown the rest."""
LAYERS, WIDTH = 8, 64


class Cost(NamedTuple):
    """Microseconds that a variant adds to a batch."""

    bare: float
    median: float
    mean: float


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch, and their share of the step."""
    torch.set_num_threads(1)
    spans = SPANS // 3 if quick else SPANS
    nothing = _in_turns(_idle, WARM_UP, spans)
    least = _in_turns(_least, WARM_UP, spans)
    rows = [
        Row("a step of 30 ms without memguard, processor time", nothing.bare, "us/batch"),
        Row("a step of 30 ms, hooks that do nothing", nothing.mean, "us/batch"),
        Row("a step of 30 ms, the least hooks that record", least.mean, "us/batch"),
    ]
    variants: tuple[tuple[str, int, bool, float | None], ...] = (
        ("defaults", WARM_UP, False, None),
        ("defaults, later on", LATER, False, 0.1),
        ("all probes on every batch", ROUNDS_OVER, True, 0.2),
    )
    for name, warm_up, every, aim in variants:
        with pytest.MonkeyPatch.context() as patch:
            if every:
                patch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", 1 << 60)
            cost = _in_turns(_watched, warm_up, spans)
        rows.append(Row(f"a step of 30 ms, {name}: the median batch", cost.median, "us/batch"))
        rows.append(Row(f"a step of 30 ms, {name}", cost.mean, "us/batch"))
        rows.append(Row(f"a step of 30 ms, {name}: share", cost.mean / STEP_SECONDS / 1e4, "%", aim))
    rows.append(Row("the slow lane's thread, of a core in the first minute", 100 * _slow_lane_share(), "%"))
    return rows


def _in_turns(guarding: Callable[[nn.Module, torch.optim.Optimizer], Any], warm_up: int, spans: int) -> Cost:
    """What the hooks of a variant add to a batch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.ones(8, WIDTH, device=device), torch.zeros(8, 1, device=device)
    buffer = bytearray(BUFFER_BYTES)

    def batch() -> None:
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    def span() -> list[float]:
        took = []
        for _ in range(SPAN):
            time.sleep(SLEEP_SECONDS)
            bytes(buffer)  # pushes everything else out of the caches
            began = time.thread_time()
            batch()
            took.append(1e6 * (time.thread_time() - began))
        return took[EDGE:]

    bare, medians, means = [], [], []
    with guarding(model, optimizer):
        for _ in range(warm_up):
            batch()
        for _ in range(spans):
            under = span()
            with taken_out(model):
                without = span()
            bare.append(statistics.median(without))
            medians.append(statistics.median(under) - statistics.median(without))
            means.append(statistics.fmean(under) - statistics.fmean(without))
    return Cost(statistics.median(bare), statistics.median(medians), middle(means))


@contextlib.contextmanager
def _watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as folder,
        memguard.watch(model, optimizer, logdir=folder, quiet=True),
    ):
        yield


def _idle(model: nn.Module, optimizer: torch.optim.Optimizer) -> LeastHooks:
    return LeastHooks(model, records=False)


def _least(model: nn.Module, optimizer: torch.optim.Optimizer) -> LeastHooks:
    return LeastHooks(model, records=True)


def _slow_lane_share() -> float:
    """Processor seconds that a reading takes; there is one a second."""
    backend = choose_backend("auto", peaks="shared")
    backend.install()
    try:
        took = []
        for _ in range(20):
            time.sleep(0.05)
            began = time.thread_time()
            backend.read_slow()
            took.append(time.thread_time() - began)
    finally:
        backend.remove()
    return statistics.median(took)

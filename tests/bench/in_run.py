"""What a callback costs within one run of one Trainer: ``python -m tests.bench in_run``.

Two runs differ by more than a callback costs: by where memory lies, by the clock of the processor, by what else runs.
So here the callback is taken out of a running Trainer every `SPAN` batches, with every hook that stands on the model
and the optimizers, and put back after as many. By the wall clock: most batches by their median, and all of them, with
looks and the working out of many records at once, by their mean.

Beside MemGuard stand the least that can be: torch's own reading and reset of its peaks, and the smallest callback that
keeps a record of each batch. No callback that tells every batch's peak can cost less than the first.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import DeviceStatsMonitor

import memguard
from tests.bench import peers
from tests.bench.lightning_loop import NEVER, fit
from tests.bench.rows import Row
from tests.bench.taken_out import middle, take_out

SPAN, WARM_UP, BATCHES = 20, 1000, 7000
AIM_US = 30.0
EDGE = 2
"""Batches at each end of a span that are left out: the first ones after a change are colder than the others."""


class InTurns(Callback):
    """Times every batch, and has another callback and its hooks in every second span only."""

    def __init__(self, other: Callback) -> None:
        self.starts: list[int] = []
        self._other = other
        self._is_in = True
        self._hooks_back: Callable[[], None] = lambda: None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.starts.append(time.perf_counter_ns())
        if batch_idx >= WARM_UP and batch_idx % SPAN == 0:
            self._take_out(trainer, pl_module) if self._is_in else self._put_back(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._is_in:
            self._put_back(trainer)

    def _take_out(self, trainer: Any, model: Any) -> None:
        self._hooks_back = take_out(model)
        trainer.callbacks.remove(self._other)
        self._is_in = False

    def _put_back(self, trainer: Any) -> None:
        self._hooks_back()
        trainer.callbacks.append(self._other)
        self._is_in = True


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch that a callback adds, in the median batch and in the mean of all."""
    torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    kinds: dict[str, tuple[Callable[[], Callback], float | None]] = {
        "a callback that does nothing": (Callback, None),
        "the least callback that records": (peers.LeastRecord, None),
        "MemGuard, logging off its step": (lambda: memguard.MemGuard(quiet=True, log_every=NEVER), AIM_US),
        "DeviceStatsMonitor at its pace": (DeviceStatsMonitor, None),
    }
    if gpu:
        kinds = {"torch's reading and reset, nothing else": (peers.OnlyTorch, None), **kinds}
    rows, means = [], {}
    for name, (make, aim) in kinds.items():
        bare, median, mean = _costs(make(), BATCHES // 3 if quick else BATCHES, gpu)
        rows += [Row(f"{name}: the median batch", median, "us", aim), Row(f"{name}: all batches, mean", mean, "us")]
        rows.append(Row(f"{name}: a batch without it in that run", bare, "us"))
        means[name] = mean
    guard = means["MemGuard, logging off its step"]
    rows += [Row(f"MemGuard over {name}, mean", guard / cost, "x") for name, cost in means.items() if cost != guard]
    return rows


def _costs(callback: Callback, batches: int, gpu: bool) -> tuple[float, float, float]:
    """The median batch without it, and what it adds to the median and to the mean batch, all in microseconds."""
    clock = InTurns(callback)
    with tempfile.TemporaryDirectory() as folder:
        fit([clock, callback], batches=batches, pace=50, gpu=gpu, folder=folder)
    took = [(later - start) / 1e3 for start, later in zip(clock.starts, clock.starts[1:], strict=False)]
    bare, medians, means = [], [], []
    for first in range(WARM_UP, batches - 2 * SPAN, 2 * SPAN):
        without = took[first + EDGE : first + SPAN - 1]
        under = took[first + SPAN + EDGE : first + 2 * SPAN - 1]
        bare.append(statistics.median(without))
        medians.append(statistics.median(under) - statistics.median(without))
        means.append(statistics.fmean(under) - statistics.fmean(without))
    return statistics.median(bare), statistics.median(medians), middle(means)

"""What MemGuard costs a batch in a Lightning Trainer, beside its peers: ``python -m tests.bench lightning_loop``.

The same small Trainer in turns, with nothing and with each callback. Processor time of the whole process, the threads
of TensorBoard's writer and of our slow lane included, so that a busy machine changes it little.
"""

from __future__ import annotations

import functools
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.nn import functional

import memguard
from tests.bench import peers
from tests.bench.rows import BARE, Row, microseconds_over_bare

WARM_UP, BATCHES, TURNS = 100, 400, 11
WIDTH = 32
NEVER = 1 << 30
GUARD, MONITOR, EACH = "MemGuard", "DeviceStatsMonitor", ", a point each batch"
AIMS = {"MemGuard, logging off its step": 30.0}


class Net(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return functional.mse_loss(self.net(batch), batch[:, :1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Clock(Callback):
    """Times the batches after the warm-up."""

    seconds = 0.0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == WARM_UP:
            self._began = time.process_time()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.seconds = (time.process_time() - self._began) / BATCHES


def _disabled() -> Callback:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMGUARD_DISABLE", "1")
        return memguard.MemGuard(quiet=True)


def _kinds(gpu: bool) -> dict[str, tuple[int, Callable[[], list[Callback]]]]:
    """By name: batches per point of the logger, and the callbacks."""
    kinds: dict[str, tuple[int, Callable[[], list[Callback]]]] = {
        BARE: (50, lambda: []),
        GUARD: (50, lambda: [memguard.MemGuard(quiet=True)]),
        "MemGuard, logging off its step": (50, lambda: [memguard.MemGuard(quiet=True, log_every=NEVER)]),
        "MemGuard, all probes on every batch": (50, lambda: [memguard.MemGuard(quiet=True)]),
        "MemGuard, MEMGUARD_DISABLE=1": (50, lambda: [_disabled()]),
        MONITOR: (50, lambda: [DeviceStatsMonitor()]),
        GUARD + EACH: (1, lambda: [memguard.MemGuard(quiet=True, log_every=1)]),
        MONITOR + EACH: (1, lambda: [DeviceStatsMonitor()]),
        "NVML at each batch's start and end": (50, lambda: [peers.NvmlEachBatch()]),
    }
    if gpu:
        kinds["torch.cuda.memory_stats() and a reset each batch"] = (50, lambda: [peers.StatsEachBatch()])
        kinds["Composer's reads each batch"] = (50, lambda: [peers.ComposerReads()])
    return kinds


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch beside the same Trainer without the callback."""
    torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    variants = {name: functools.partial(_seconds, name, make, pace, gpu) for name, (pace, make) in _kinds(gpu).items()}
    costs = microseconds_over_bare(variants, 3 if quick else TURNS)
    rows = [Row("Trainer, a batch without callback", costs.pop(BARE), "us")]
    rows += [Row(f"Trainer with {name}", cost, "us/batch", AIMS.get(name)) for name, cost in costs.items()]
    per_point = (costs[GUARD + EACH] - costs[GUARD]) / (1 - 1 / 50)
    rows.append(Row("MemGuard, what a logged step takes in addition", per_point, "us/point"))
    for pace in ("", EACH):
        ratio = costs[GUARD + pace] / costs[MONITOR + pace]
        rows.append(Row(f"MemGuard's cost over DeviceStatsMonitor's{pace}", ratio, "x", 0.05 if gpu and pace else None))
    others = [name for name in costs if not name.startswith((GUARD, MONITOR))]
    rows += [Row(f"MemGuard's cost over {name}", costs[GUARD] / costs[name], "x") for name in others]
    return rows


def _seconds(name: str, callbacks: Callable[[], list[Callback]], pace: int, gpu: bool) -> float:
    """Processor seconds a batch."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if "all probes" in name:
            patch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", NEVER)
        fit([clock, *callbacks()], batches=WARM_UP + BATCHES, pace=pace, gpu=gpu, folder=folder)
    return clock.seconds


def fit(callbacks: list[Callback], *, batches: int, pace: int, gpu: bool, folder: str) -> None:
    """Trains so many batches, with a logger that steps at this pace."""
    data = torch.ones(8 * batches, WIDTH)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cuda" if gpu else "cpu",
            devices=1,
            max_epochs=1,
            callbacks=callbacks,
            logger=TensorBoardLogger(folder),
            log_every_n_steps=pace,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=8))  # type: ignore[arg-type]

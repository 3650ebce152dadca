"""What memguard and a peer write: ``python -m tests.bench footprint``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import DeviceStatsMonitor
from torch import nn

import memguard
from memguard.recording.format import HEADER_BYTES
from tests.bench import lightning_loop
from tests.bench.rows import Row

BATCHES = 500
SHORT, LONG = 10, 60
"""Points of the two runs whose difference tells what a point takes."""


def measure() -> list[Row]:
    """Bytes a batch, scalars and bytes a logged step."""
    torch.set_num_threads(1)
    scalars, nbytes = _per_step(lambda: memguard.MemGuard(quiet=True, log_every=1))
    their_scalars, their_bytes = _per_step(DeviceStatsMonitor)
    return [
        Row("recording, bytes a batch", _recorded(), "bytes", 128.0),
        Row("MemGuard, scalars per logged step", scalars, "scalars"),
        Row("DeviceStatsMonitor, scalars per logged step", their_scalars, "scalars"),
        Row("MemGuard, TensorBoard data per logged step", nbytes, "bytes", 2048.0),
        Row("DeviceStatsMonitor, TensorBoard data per logged step", their_bytes, "bytes"),
    ]


def _recorded() -> float:
    """Bytes that the recording grows by with each batch, its header and the session's lines left out."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Linear(8, 8).to(device)
    with tempfile.TemporaryDirectory() as folder:
        with memguard.watch(model, logdir=folder, quiet=True) as guard:
            for _ in guard.batches(range(BATCHES)):
                model(torch.ones(1, 8, device=device)).sum().backward()
        data = next(Path(folder).rglob("rank*.bin")).stat().st_size
    return (data - HEADER_BYTES) / BATCHES


def _per_step(make: Any) -> tuple[float, float]:
    """Scalars and bytes of a callback for one logged step: the difference of a long run and a short one."""
    (few, small), (many, large) = (_logged(make(), points) for points in (SHORT, LONG))
    return (many - few) / (LONG - SHORT), (large - small) / (LONG - SHORT)


def _logged(callback: Callback, points: int) -> tuple[int, int]:
    """Scalars and bytes in the event files of a run that logs nothing but what the callback does."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with tempfile.TemporaryDirectory() as folder:
        lightning_loop.fit([callback], batches=points, pace=1, gpu=torch.cuda.is_available(), folder=folder)
        files = list(Path(folder).rglob("events.out.tfevents.*"))
        events = [event for file in files for event in EventFileLoader(str(file)).Load()]
        scalars = [value for event in events for value in event.summary.value if value.tag.count("/")]
        return len(scalars), sum(file.stat().st_size for file in files)

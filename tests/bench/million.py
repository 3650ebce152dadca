"""Whether a million batches leave memory and open files where they were: ``python -m tests.bench million``."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path

import psutil
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.recording.format import HEADER_BYTES
from tests.bench.rows import Row

BATCHES, SETTLED, STRETCH = 1_000_000, 20_000, 50_000
QUICK = 20
"""So many times fewer where figures may be rough."""
VALIDATE_EVERY, LENGTHS, WIDTH = 5_000, 40, 8
MIB = 1 << 20


def measure(*, quick: bool = False) -> list[Row]:
    """Growth of memory, files and cost from the first batches to the last."""
    torch.set_num_threads(1)
    batches, settled, stretch = (n // QUICK if quick else n for n in (BATCHES, SETTLED, STRETCH))
    with tempfile.TemporaryDirectory() as folder:
        rss, files, seconds = _train(Path(folder), batches, settled, stretch)
        data = sum(path.stat().st_size - HEADER_BYTES for path in Path(folder).rglob("rank*.bin"))
        lines = sum(path.stat().st_size for path in Path(folder).rglob("rank*.jsonl"))
        events = sum(path.stat().st_size for path in Path(folder).rglob("events.out.tfevents.*"))
    return [
        Row(f"{batches:,} batches, resident memory grew by", (rss[-1] - rss[0]) / MIB, "MiB", 20.0),
        Row(f"{batches:,} batches, open files more", files[-1] - files[0], "files", 0.0),
        Row(f"{batches:,} batches, cost of the last over the first", seconds[-1] / seconds[0], "x", 1.25),
        Row("the recording", data / batches, "bytes/batch", 128.5),
        Row("the recording's rare lines", lines / batches, "bytes/batch"),
        Row("TensorBoard's file at default pace", events / batches, "bytes/batch"),
    ]


def _train(folder: Path, batches: int, settled: int, stretch: int) -> tuple[list[int], list[int], list[float]]:
    """Trains on batches of many sizes; resident bytes, open files and processor seconds of a batch as they went."""
    model, process = nn.Linear(WIDTH, 1), psutil.Process()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sizes = [(torch.ones(n, WIDTH), torch.zeros(n, 1)) for n in range(1, LENGTHS + 1)]
    rss: list[int] = []
    files: list[int] = []
    seconds: list[float] = []
    began = 0.0
    with memguard.watch(model, optimizer, logdir=folder, quiet=True, device="cpu") as guard:
        for batch in range(batches):
            if batch in (settled, batches - stretch):
                began = time.process_time()
            if batch == settled:
                _look(process, rss, files)
            x, y = sizes[batch * 7 % LENGTHS]
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if batch in (settled + stretch, batches - 1):
                seconds.append((time.process_time() - began) / stretch)
            if batch % VALIDATE_EVERY == VALIDATE_EVERY - 1:
                model.eval()
                for x, _ in sizes[:5]:
                    model(x)
                model.train()
        _look(process, rss, files)
        assert len(guard.records) > 0
    return rss, files, seconds


def _look(process: psutil.Process, rss: list[int], files: list[int]) -> None:
    gc.collect()
    rss.append(process.memory_info().rss)
    files.append(len(os.listdir("/proc/self/fd")))

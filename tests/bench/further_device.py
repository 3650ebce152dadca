"""What a batch pays for each further device of its process: a recorder of its own, with the rules on records."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from memguard.backends.choose import choose_backend
from memguard.recorder import Recorder
from memguard.records.stats import Run, Stage
from memguard.rules import make_rules
from tests.bench.rows import Row

BATCHES = 4000
TURNS = 5


def measure() -> list[Row]:
    """One further device; nothing where there is no CUDA."""
    if not torch.cuda.is_available():
        return []
    held = torch.ones(1024, device="cuda:0")
    costs = sorted(_microseconds() for _ in range(TURNS))
    del held
    return [Row("further device of a process, per batch", costs[TURNS // 2], "us")]


def _microseconds() -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(device="cuda:0", device_total_bytes=None)
        recorder = Recorder(choose_backend("cuda:0"), run, logdir=Path(folder), detectors=make_rules())
        recorder.open({"lane": 1})
        recorder.stage_start(Stage.TRAIN)
        began = time.thread_time()
        for index in range(BATCHES):
            recorder.batch_start(index)
            recorder.batch_end()
        seconds = time.thread_time() - began
        recorder.close()
    return 1e6 * seconds / BATCHES

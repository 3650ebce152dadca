"""How long a forecast of a training step takes, from nothing to the verdict: ``python -m tests.bench forecast``."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import torch

from memguard.forecast.fakes.without_dynamo import warm_up
from tests.bench.rows import Row

sys.path.insert(0, str(Path(__file__).parent))  # the cases are also run as scripts, by another Python

from forecast_accuracy import predict
from forecast_models import Case

CASES = (Case("mlp"), Case("resnet"), Case("bert"), Case("gpt", "adamw-fused", "bf16-amp", 4, size="124M"))
REPEATS = 5


def measure(*, quick: bool = False) -> list[Row]:
    """Seconds on the clock of a forecast of three steps; it runs in a child process."""
    torch.set_num_threads(1)
    warm_up()
    rows = []
    for case in CASES[:1] if quick else CASES:
        seconds = [predict(case, 3, "2.15")[2] for _ in range(2 if quick else REPEATS)]
        label = f"forecast of {case.model} {case.size}, {case.optimizer}, {case.precision}"
        rows.append(Row(label, statistics.median(seconds), "s"))
    return rows

"""What memguard takes once: its imports, and putting a guard in place: ``python -m tests.bench startup``."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

import memguard
from tests.bench.rows import Row

_TIMED = "import json, time{before}; a = time.process_time(); {code}; print(json.dumps(time.process_time() - a))"


def measure(*, quick: bool = False) -> list[Row]:
    """Milliseconds of processor time."""
    torch.set_num_threads(1)
    few, many = (1, 3) if quick else (5, 11)
    frameworks = ", torch, lightning.pytorch"
    return [
        Row("import memguard", _fresh("import memguard", many), "ms", 50.0),
        Row("import torch, for comparison", _fresh("import torch", few), "ms"),
        Row("memguard.watch, loaded after torch", _fresh("import memguard; memguard.watch", few, ", torch"), "ms"),
        Row(
            "memguard.MemGuard, loaded after lightning",
            _fresh("import memguard; memguard.MemGuard", few, frameworks),
            "ms",
        ),
        Row("a watch opened and closed", _guard(many), "ms"),
    ]


def _fresh(code: str, repeats: int, before: str = "") -> float:
    """The median processor time of some code in a fresh interpreter, after the imports that do not count.

    An installed package is compiled; the first interpreter may still have to do that here, and is left out.
    """
    times = []
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(repeats + 1):
        command = [sys.executable, "-W", "ignore", "-c", _TIMED.format(before=before, code=code)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        times.append(1e3 * json.loads(done.stdout.splitlines()[-1]))
    return statistics.median(times[1:])


def _guard(repeats: int) -> float:
    """The median time of a guard's life without a batch; the first one loads what the others find."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(50)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = []
    for _ in range(repeats + 1):
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            with memguard.watch(model, optimizer, logdir=folder, quiet=True):
                pass
            times.append(1e3 * (time.process_time() - began))
    return statistics.median(times[1:])

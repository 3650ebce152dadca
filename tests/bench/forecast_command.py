"""What the command `memguard forecast` takes from its start to its end: ``python -m tests.bench forecast_command``.

Each run is a fresh interpreter: Python's start, `import torch` in the command's child, three traced steps, the replay,
the text, the end. In turns with it, so that the same hour meets both, an interpreter that only imports torch.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.bench.rows import Row

TARGETS = Path(__file__).with_name("forecast_targets.py")
SUBJECTS = (
    ("GPT-2 124M", "gpt2_124m", ("40GiB",), 3.0, 2.0),
    ("7 billion", "gpt_7b", ("nvidia-h200",), 10.0, 2.0),
    ("7 billion where they do not fit, and what would help", "gpt_7b", ("40GiB",), 10.0, 2.0),
    ("70 billion on 512 ranks", "llama_70b", ("h100", "--nproc", "8", "--nnodes", "64"), 60.0, 4.0),
)
"""Name, function, device and options, the most seconds on the clock of two free cores, the most GB of all processes."""
IMPORT = ("-c", "import torch")
_EVERY_SECONDS = 0.2


class Taken(NamedTuple):
    """One run: seconds on the clock and seconds of processors."""

    clock: float
    processors: float


def run(*arguments: str) -> Taken:
    """A fresh interpreter with these arguments, from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    clock = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def memory_of(*arguments: str) -> int:
    """The most bytes that such a run and its children hold at one time, memory that they share counted once."""
    most = 0
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        whole = psutil.Process(running.pid)
        while running.poll() is None:
            now = 0
            with contextlib.suppress(psutil.Error):
                for process in (whole, *whole.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        now += process.memory_full_info().pss
            most = max(most, now)
            time.sleep(_EVERY_SECONDS)
    return most


def measure(*, quick: bool = False) -> list[Row]:
    """Medians of the seconds; the host memory is that of all processes in a further run."""
    rows = []
    for name, function, device, aim, most in SUBJECTS[:1] if quick else SUBJECTS:
        command = ("-m", "memguard", "forecast", f"{TARGETS}:{function}", "--device", *device)
        turns = [(run(*IMPORT), run(*command)) for _ in range(2 if quick else 5)]
        alone, whole = (list(each) for each in zip(*turns, strict=True))
        rows += [
            Row(f"import torch alone, beside {name}", statistics.median(t.clock for t in alone), "s"),
            Row(f"memguard forecast, {name}: clock", statistics.median(t.clock for t in whole), "s", aim),
            Row(f"import torch alone, beside {name}: processor", statistics.median(t.processors for t in alone), "s"),
            Row(f"memguard forecast, {name}: processor", statistics.median(t.processors for t in whole), "s"),
            Row(f"memguard forecast, {name}: host memory", memory_of(*command) / 1e9, "GB", most),
        ]
    return rows

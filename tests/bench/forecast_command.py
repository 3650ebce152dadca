"""What the command `memguard forecast` takes from its start to its end: ``python -m tests.bench forecast_command``.

Each run is a fresh interpreter: Python's start, `import torch` in the command's child, three traced steps, the replay,
the text, the end. In turns with it, so that the same hour meets both, an interpreter that only imports torch.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.rows import Row

TARGETS = Path(__file__).with_name("forecast_targets.py")
SUBJECTS = (
    ("GPT-2 124M", "gpt2_124m", "40GiB", 3.0),
    ("7 billion", "gpt_7b", "nvidia-h200", 10.0),
    ("7 billion where they do not fit, and what would help", "gpt_7b", "40GiB", 10.0),
)
"""Name, function, device, and the most seconds on the clock of two free cores."""
IMPORT = ("-c", "import torch")
HOST_MEMORY = 2e9
_ALONE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class Taken(NamedTuple):
    """One run: seconds on the clock, seconds of processors, most resident bytes of a process, its children included."""

    clock: float
    processors: float
    resident_bytes: int


def run(*arguments: str) -> Taken:
    """A fresh interpreter with these arguments, from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, sys.executable, *arguments], capture_output=True, text=True, check=True
    )
    clock = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(clock, processors, int(done.stdout.split()[-1]) << 10)


def measure(*, quick: bool = False) -> list[Row]:
    """Medians of the seconds; the host memory is that of the largest process."""
    rows = []
    for name, function, device, aim in SUBJECTS[:1] if quick else SUBJECTS:
        command = ("-m", "memguard", "forecast", f"{TARGETS}:{function}", "--device", device)
        turns = [(run(*IMPORT), run(*command)) for _ in range(2 if quick else 5)]
        alone, whole = (list(each) for each in zip(*turns, strict=True))
        rows += [
            Row(f"import torch alone, beside {name}", statistics.median(t.clock for t in alone), "s"),
            Row(f"memguard forecast, {name}: clock", statistics.median(t.clock for t in whole), "s", aim),
            Row(f"import torch alone, beside {name}: processor", statistics.median(t.processors for t in alone), "s"),
            Row(f"memguard forecast, {name}: processor", statistics.median(t.processors for t in whole), "s"),
            Row(
                f"memguard forecast, {name}: host memory",
                max(t.resident_bytes for t in whole) / 1e9,
                "GB",
                HOST_MEMORY / 1e9,
            ),
        ]
    return rows

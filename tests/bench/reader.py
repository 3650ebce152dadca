"""How fast a recording of a million batches is read and explained: ``python -m tests.bench reader``.

The command's processor time, user and system together, from a cold interpreter to its last line.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.rows import Row
from tests.tensorboard_plugin.make_logdir import make_long

BATCHES, SPIKES = 1_000_000, 50
AIMS = {"report": 2.0, "report --json": 2.0}


def measure(*, quick: bool = False) -> list[Row]:
    """Seconds of ``memguard report`` and its kin."""
    batches, repeats = (BATCHES // 10, 1) if quick else (BATCHES, 5)
    with tempfile.TemporaryDirectory() as folder:
        make_long(Path(folder) / "run", batches, SPIKES)
        page = str(Path(folder) / "page.html")
        commands: dict[str, Sequence[str]] = {
            "report": (), "report --json": ("--json",), "report --html": ("--html", page)
        }  # fmt: skip
        return [
            Row(f"memguard {name}, {batches:,} batches", _seconds(folder, arguments, repeats), "s", AIMS.get(name))
            for name, arguments in commands.items()
        ]


def _seconds(folder: str, arguments: Sequence[str], repeats: int) -> float:
    """The median processor time of a command and its children."""
    times = []
    for _ in range(repeats):
        before = os.times()
        command = [sys.executable, "-m", "memguard", "report", str(Path(folder) / "run"), *arguments]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(times)

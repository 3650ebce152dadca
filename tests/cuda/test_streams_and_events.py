"""Streams and events that a loop keeps: in some versions of torch a weak reference that outlives one crashes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from memguard.heap.history import _reference

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, torch, memguard

side, behind, window = torch.cuda.Stream(), [], []
with memguard.watch(device="cuda:0", logdir=sys.argv[1], quiet=True) as guard:
    for number in guard.batches(range(60)):
        behind.append(side.record_event())
        window.append((torch.cuda.Stream(), torch.cuda.Event()))
        del behind[:-3], window[:-3]
        junk = [bytearray(b"\\xff" * size) for size in range(16, 400)]
"""


@pytest.mark.parametrize(
    "make",
    [torch.cuda.Stream, torch.cuda.Event, lambda: (1, torch.cuda.Event()), lambda: {"at": torch.cuda.current_stream()}],
    ids=["stream", "event", "in a tuple", "in a dictionary"],
)
def test_nothing_refers_to_one_weakly(make: Callable[[], object]) -> None:
    """Neither to one by itself nor to one in a container."""
    assert _reference(make()) is None


def test_a_loop_that_keeps_them_ends_well(tmp_path: Path) -> None:
    """Lists of events and streams that come and go, as a loop that prefetches has them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:]

"""Interrupts at any point: what the user catches is what was raised, and the recording reads up to the last record."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.recorder import LARGEST_BLOCK
from memguard.recording.reader import Recording, find_recordings
from tests.chaos.training import Numbers, assert_same, train, unguarded, watched

OURS = str(Path(memguard.__file__).parent)
ROOT = Path(__file__).parents[2]


def interrupt_at(line: int, kind: type[BaseException]) -> Callable[..., Any]:
    """A trace function that raises in the given line, counted over all lines of memguard's that run."""
    count = 0

    def look(frame: types.FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise kind("planted")
        return look

    return look


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("line", [1, 40, *range(150, 9000, 587)])
def test_an_interrupt_in_any_line_of_ours_passes_and_leaves_nothing(line: int, tmp_path: Path) -> None:
    """KeyboardInterrupt between any two of our lines, from the first to the last: the next training is as ever."""
    guards: list[Any] = []

    def guarding(*args: Any) -> Any:
        guards.append(memguard.watch(*args, logdir=tmp_path, quiet=True, device="cpu", log_every=2))
        return guards[0]

    before = sys.gettrace()
    sys.settrace(interrupt_at(line, KeyboardInterrupt))
    try:
        train(guarding)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    for guard in guards:
        guard.close()
    assert torch.is_grad_enabled()


def test_the_training_after_an_interrupt_is_as_ever(tmp_path: Path) -> None:
    """Nothing that an interrupt left changes the numbers of the next run."""
    truth: Numbers = train(unguarded)
    assert_same(train(watched(tmp_path, device="cpu")), truth)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_as_it_would_and_the_recording_reads(number: signal.Signals, tmp_path: Path) -> None:
    """Its exit code is the signal's; every batch before it was recorded."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.interrupted_program", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert process.stdout is not None
    reached = [int(process.stdout.readline()) for _ in range(3)][-1]
    for _ in range(6):  # Python drops an interrupt that comes in the callback of a weak reference
        process.send_signal(number)
        try:
            complaints = process.communicate(timeout=30)[1]
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        process.kill()
        complaints = process.communicate()[1]
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in complaints) == (number is signal.SIGINT)
    recording = Recording.open(find_recordings(tmp_path)[0])
    batches = [record.batch for record in recording.records()]
    assert batches == list(range(len(batches)))
    assert len(batches) > reached - (0 if number is signal.SIGINT else LARGEST_BLOCK)  # short ones are written together
    assert (recording.end is not None) == (number is signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_kill_at_any_moment_leaves_whole_records(seed: int, tmp_path: Path) -> None:
    """SIGKILL while it starts, trains or writes: what was written reads, batch after batch, and nothing else stands."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.interrupted_program", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    chance = random.Random(seed)
    for _ in range(chance.randrange(40)):
        process.stdout.readline()
    process.kill()
    process.communicate()
    recording = Recording.open(find_recordings(tmp_path)[0])
    batches = [record.batch for record in recording.records()]
    assert batches == list(range(len(batches)))
    assert batches and recording.end is None
    assert recording.session is not None

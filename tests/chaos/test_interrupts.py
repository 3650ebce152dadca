"""Interrupts at any point: what the user catches is what was raised, and the recording reads up to the last record."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.integrations.session import open_sessions
from memguard.recorder import LARGEST_BLOCK
from memguard.recording.reader import Recording, find_recordings
from tests.chaos.left_behind import in_process
from tests.chaos.training import Numbers, assert_same, train, unguarded, watched

OURS = str(Path(memguard.__file__).parent)
ROOT = Path(__file__).parents[2]


Line = tuple[str, int, str]
"""A file, the line's number, and the function's name."""


class Lines:
    """A trace function: notes each line of memguard's that runs, and raises where one of them runs first.

    Args:
        planted: Where to raise; None raises nowhere.
    """

    def __init__(self, planted: Line | None = None) -> None:
        self.seen: dict[Line, None] = {}
        self._planted = planted

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        line = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if event == "line" and line not in self.seen:
            self.seen[line] = None
            if line == self._planted:
                raise KeyboardInterrupt("planted")
        return self


def train_with(lines: Lines, logdir: Path) -> None:
    """A guarded training, its guard closed once more afterwards, as `memguard.unwrap` and the process's end do."""
    guards: list[Any] = []

    def guarding(*args: Any) -> Any:
        guards.append(memguard.watch(*args, logdir=logdir, quiet=True, device="cpu", log_every=2))
        return guards[0]

    before = sys.gettrace()
    sys.settrace(lines)
    try:
        train(guarding)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    for guard in guards:
        guard.close()


COME_AND_GO = {"open", "close", "install", "remove", "take_away", "put_on", "rest", "stop"}
"""Functions that put something of ours into torch or Python, or take it away."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [600, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_in_any_line_of_ours_passes_and_leaves_nothing(every: int, tmp_path: Path) -> None:
    """KeyboardInterrupt between any two of our lines: nothing of ours is left in torch or Python."""
    lines = Lines()
    train_with(Lines(), tmp_path)  # what is loaded once is loaded
    train_with(lines, tmp_path)
    patching = [line for line in lines.seen if line[2] in COME_AND_GO]
    assert len(patching) > 50
    for line in {*patching[:: min(every, 8)], *list(lines.seen)[::every]}:
        train_with(Lines(line), tmp_path)
        assert in_process() == [], line
        assert open_sessions() == [], line
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

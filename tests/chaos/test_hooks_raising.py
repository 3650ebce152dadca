"""Every method of ours raises, one at a time: the training never knows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memguard.backends.host import HostMemory
from memguard.backends.slow_lane import SlowLane
from memguard.evidence import PROBES
from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.guards.empty_cache import CacheGuard
from memguard.guards.no_grad import NoGradGuard
from memguard.integrations.fleet import Fleet
from memguard.integrations.guard import Guard
from memguard.integrations.loop.fast_path import FastPath
from memguard.integrations.loop.inference import BatchInference
from memguard.integrations.loop.plain_loop import PlainLoop
from memguard.integrations.never_raises import shielded
from memguard.integrations.oom.last_exits import LastExits
from memguard.integrations.oom.watch import OomWatch
from memguard.integrations.overhead import Overhead
from memguard.integrations.progress import BatchLine
from memguard.integrations.session import Session
from memguard.integrations.validation import ValidationGuard
from memguard.recorder import Recorder
from memguard.recording.writer import RecordingWriter
from memguard.records.batch_ends import RecordMaker
from memguard.records.summary import Summary
from memguard.rules import ALL_RULES
from memguard.sinks.console import ConsoleSink
from memguard.sinks.tensorboard import TensorBoardSink
from tests.chaos.training import Truth, assert_same, first_lines, train, unguarded, watched

PARTS = (
    *(
        Guard,
        PlainLoop,
        BatchInference,
        FastPath,
        Session,
        Fleet,
        Overhead,
        Recorder,
        RecordMaker,
        RecordingWriter,
        Summary,
        ProbeDispatcher,
    ),
    *(ValidationGuard, NoGradGuard, CacheGuard, OomWatch, LastExits),
    *(ConsoleSink, TensorBoardSink, SlowLane, HostMemory, BatchLine),
    *PROBES,
    *ALL_RULES,
)
# What the user calls by name may tell of a failure; what the loop calls may not.
BY_NAME = {"add", "drop", "close", "batches", "summary", "result", "hook_failed", "part_failed", "_open"}
# A part that cannot be taken away cannot be gone: it is taken away once it can.
TAKES_AWAY = {
    "remove",
    "close",
    "stop",
    "release",
    "leave_losses",
    "_unhook_optimizers",
    "_unhook",
    "_tell_end",
    "_leave_sessions",
    "_disarm",
    "_end",
}
# Run in a thread or by the collector, or while the object is made.
ELSEWHERE = {"_run", "_on_collection", "_optimizer_gone", "_wire", "_use"}
# Without the last line of defence, what fails may be told of more than once.
DEFENCE = {"failed", "part", "_safely"}


class ChaosError(Exception):
    """What our methods raise here."""


def methods(*kinds: type) -> Iterator[Any]:
    """All of them; those by which a probe or a rule helps itself are slow, for what they raise its events raise."""
    for kind in kinds:
        for name, value in vars(kind).items():
            if not inspect.isfunction(value) or name.startswith("__") or name in ELSEWHERE:
                continue
            if kind not in (Guard, PlainLoop) or name not in BY_NAME:
                inner = name.startswith("_") and kind in (*PROBES, *ALL_RULES)
                marks = [pytest.mark.slow] if inner else []
                yield pytest.param(kind, name, id=f"{kind.__name__}.{name}", marks=marks)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(train(unguarded))


@pytest.mark.parametrize(("kind", "name"), list(methods(*PARTS)))
def test_a_plain_loop_never_knows(
    kind: type,
    name: str,
    truth: Truth,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever method fails: the numbers are the same, and the log has a line for each part, once."""
    calls: list[tuple[Any, ...]] = []

    def chaos(*args: Any, **kwargs: Any) -> None:
        if name in TAKES_AWAY:
            calls.append(args)
        raise ChaosError("planted")

    is_shielded = hasattr(vars(kind)[name], "__wrapped__")
    monkeypatch.setattr(kind, name, shielded(chaos) if is_shielded else chaos)
    numbers = train(watched(tmp_path, device="cpu", log_every=2, empty_cache=2))
    monkeypatch.undo()
    for args in calls:
        getattr(kind, name)(*args)
    assert_same(numbers, truth)
    lines = first_lines(caplog.records)
    assert len(lines) == len(set(lines)) or name in DEFENCE, lines

"""Tensors of the last batch that go only when new ones are put in their place, and the peak up to then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from memguard.evidence.kept.outputs import OutputsProbe
from memguard.evidence.peaks.previous_batch import PeakAtRelease
from memguard.records.facts import PreviousOutputsAlive
from memguard.records.findings import Severity
from memguard.records.stats import MemoryStats
from memguard.rules.lifetimes import PreviousBatchAlive
from tests.evidence.loop import Loop, record_of
from tests.rules.evidence import AT, GIB, judge, record, run_of


class Counter:
    """A device on which the test says what the peak is."""

    def __init__(self) -> None:
        self.peak = 10

    def read(self) -> MemoryStats:
        return MemoryStats(allocated_peak_bytes=self.peak)


def test_what_goes_later_is_not_looked_at() -> None:
    """Neither after the end of the look, nor does a device that fails reach the statement that lets go."""
    device = Counter()
    one, other = torch.zeros(4), torch.zeros(4)
    gone = PeakAtRelease([one], device.read)
    gone.stop()
    del one
    assert gone.peak is None

    def fails() -> MemoryStats:
        raise RuntimeError("no device")

    gone = PeakAtRelease([other], fails)
    del other
    assert gone.peak is None


class Keeps:
    """Leaves the last outputs for somebody who looks at them now and then."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(64, 64)
        self.last: object = None


def _as_tuple(out: torch.Tensor) -> object:
    return out.detach(), out.detach() * 2


def _as_dict(out: torch.Tensor) -> object:
    return {"out": out.detach(), "twice": out.detach() * 2, "thrice": out.detach() * 3}


@pytest.mark.parametrize("made", [_as_tuple, _as_dict])
@pytest.mark.parametrize("peak_after", [False, True])
def test_a_peak_between_the_forward_and_what_replaces_the_old_is_told(
    made: Callable[[torch.Tensor], object], peak_after: bool
) -> None:
    """The statement makes the new ones first; a peak that comes after it is not the old ones' doing."""
    device, keeps = Counter(), Keeps()
    with Loop(keeps.model, kinds=[OutputsProbe], device_total_bytes=60_000, read=device.read) as loop:
        loop.record = record_of(allocated_peak_bytes=30)
        for _ in loop.batches(4):
            device.peak = 10
            out = keeps.model(torch.rand(8, 64))
            device.peak = 20 if peak_after else 30
            keeps.last = made(out)
            device.peak = 30
            out.sum().backward()
            del out
    facts = loop.of(PreviousOutputsAlive)
    assert [fact.place.holder for fact in facts] == ["Keeps.last"] * 2
    assert [(fact.peak_in_forward, fact.until_backward) for fact in facts] == [(False, False)] * 2
    assert [fact.until_peak for fact in facts] == [not peak_after] * 2


def test_it_is_told_as_information() -> None:
    """What is there between may be compared with the new ones."""
    fact = PreviousOutputsAlive(**AT, bytes=4 * GIB, peak_in_forward=False, until_peak=True)
    full = record(0, allocated_peak_bytes=19 * GIB)
    (finding,) = judge(PreviousBatchAlive(), full, fact, fact, run=run_of(limit_bytes=20 * GIB))
    assert finding.severity is Severity.INFO

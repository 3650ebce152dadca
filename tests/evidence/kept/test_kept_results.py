"""Results of whole evaluations, kept from fold to fold: of which a run makes few."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.kept.evaluation_results import KeptResultsProbe
from memguard.records.facts import KeptResults
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Stage
from memguard.rules.kept_storage import OutputsAccumulate
from tests.evidence.loop import Loop
from tests.rules.evidence import AT, GIB, MIB, judge, record, run_of

FOLDS, BATCHES = 6, 12


def evaluated(folds: int, keep: Callable[[torch.Tensor], Any], *, grows: int = 2 * MIB) -> list[KeptResults]:
    """What is told of folds that evaluate a model each; every record says that memory grew."""
    with Loop(kinds=[KeptResultsProbe]) as loop:
        for fold in range(folds):
            model = nn.Linear(64, 64)
            loop.add(model)
            for _ in loop.batches(BATCHES):
                model(torch.rand(8, 64))
            for index in loop.batches(BATCHES, Stage.VALIDATION):
                end = 16 * MIB + fold * grows
                loop.record = BatchRecord(
                    batch=loop.batch, stage=Stage.VALIDATION, time=0, seconds=0, allocated_end_bytes=end
                )
                if index == BATCHES - 1:
                    keep(model(torch.rand(8192, 64)).detach())
    return loop.of(KeptResults)


@dataclass
class Result:
    """Of one fold."""

    fold: int
    scores: torch.Tensor


class Study:
    """Collects results in an attribute."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.objects: list[Result] = []
        self.on_host: list[torch.Tensor] = []
        self.last: deque[torch.Tensor] = deque(maxlen=4)
        self.best: torch.Tensor | None = None

    def keep(self, scores: torch.Tensor) -> None:
        self.results.append({"scores": scores, "more": [scores * 2]})

    def keep_objects(self, scores: torch.Tensor) -> None:
        self.objects.append(Result(1, scores))

    def keep_on_host(self, scores: torch.Tensor) -> None:
        self.on_host.append(scores.cpu())

    def keep_last(self, scores: torch.Tensor) -> None:
        self.last.append(scores)

    def keep_best(self, scores: torch.Tensor) -> None:
        self.best = scores


@pytest.mark.parametrize(("method", "name"), [(Study.keep, "results"), (Study.keep_objects, "objects")])
def test_what_grows_from_end_to_end_is_told_once(method: Callable[[Study, torch.Tensor], None], name: str) -> None:
    """At the statement that adds, with what each evaluation brings."""
    study = Study()
    (fact,) = evaluated(FOLDS, lambda scores: method(study, scores))
    assert (fact.place.holder, fact.place.function) == (f"Study.{name}", f"Study.{method.__name__}")
    assert fact.results == 3 and fact.batches_per_evaluation == 2 * BATCHES and not fact.bounded
    assert fact.bytes == pytest.approx(3 * fact.bytes_per_evaluation)


def test_what_is_bounded_is_told_as_that() -> None:
    """A deque with a maxlen grows as well, until it is full."""
    study = Study()
    assert [fact.bounded for fact in evaluated(FOLDS, study.keep_last)] == [True]


@pytest.mark.parametrize("method", [Study.keep_on_host, Study.keep_best])
def test_what_does_not_pile_up_on_the_device_is_not_told(method: Callable[[Study, torch.Tensor], None]) -> None:
    """Results that were brought to the host, and the best ones alone."""
    study = Study()
    assert evaluated(FOLDS, lambda scores: method(study, scores)) == []


def test_nothing_is_looked_for_while_memory_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the last record is all that an end costs then; and two evaluations show nothing yet."""
    study = Study()
    assert evaluated(2, study.keep) == []
    monkeypatch.setattr("memguard.evidence.kept.evaluation_results.HolderSearch", None)
    assert evaluated(FOLDS, study.keep, grows=1024) == []


def test_short_evaluations_are_looked_at_ever_more_seldom() -> None:
    """An agent acts between any two batches."""
    looks: list[bool] = []

    def look() -> None:
        looks.append(True)

    with Loop(kinds=[KeptResultsProbe]) as loop:
        loop.watch.find_record = look
        for _ in range(1000):
            for _ in loop.batches(1, Stage.VALIDATION):
                pass
    assert len(looks) < 60


FACT = KeptResults(
    **AT, results=3, bytes=3 * GIB // 2, bytes_per_evaluation=GIB / 2, batches_per_evaluation=100.0, bounded=False
)


@pytest.mark.parametrize(
    ("batches_left", "peak", "severity"),
    [
        (5000, 10 * GIB, Severity.WARNING),  # 50 evaluations are to come
        (300, 10 * GIB, Severity.INFO),
        (None, 10 * GIB, Severity.WARNING),  # 28 more fill what is left
    ],
)
def test_a_warning_is_for_what_will_fill_the_device(batches_left: int | None, peak: int, severity: Severity) -> None:
    """What the evaluations to come will bring decides."""
    run = run_of(batches_left=batches_left)
    (finding,) = judge(OutputsAccumulate(), record(0, allocated_peak_bytes=peak), FACT, run=run)
    assert finding.severity is severity and "512 MiB more with every evaluation" in finding.message

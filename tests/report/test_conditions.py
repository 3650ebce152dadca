"""Conditions of `memguard report --fail-if`."""

import pytest

from memguard.errors import MemGuardError
from memguard.records.findings import Severity
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary
from memguard.report.conditions import Condition
from memguard.text.units import GIB, MIB
from tests.fakes import finding


def summary(peak: int, *, validation: int | None = None, reserved: int | None = None, **extra: object) -> Summary:
    stages = {Stage.TRAIN: StageSummary(peak=Peak(allocated_bytes=peak, stage=Stage.TRAIN))}
    if validation is not None:
        stages[Stage.VALIDATION] = StageSummary(peak=Peak(allocated_bytes=validation, stage=Stage.VALIDATION))
    return Summary(device="cuda:0", stages=stages, reserved_peak_bytes=reserved, **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "run", "baseline", "says"),
    [
        ("peak>20GiB", summary(21 * GIB), None, "peak is 21.0 GiB"),
        ("peak>20GiB", summary(20 * GIB), None, None),
        ("peak>=20GiB", summary(20 * GIB), None, "peak is 20.0 GiB"),
        ("peak > +3%", summary(104 * MIB), summary(100 * MIB), "104 MiB, the baseline has 100 MiB, +4.0%"),
        ("peak>+3%", summary(103 * MIB), summary(100 * MIB), None),
        ("peak>+2MiB", summary(103 * MIB), summary(100 * MIB), "+3.0%"),
        ("peak>+0%", summary(100 * MIB + 1), summary(100 * MIB), "the baseline has 100 MiB"),
        ("peak[validation]>1GiB", summary(GIB, validation=2 * GIB), None, "peak[validation] is 2.00 GiB"),
        ("reserved>+10%", summary(GIB, reserved=12), summary(GIB, reserved=10), "+20.0%"),
        ("retries>0", summary(GIB, num_alloc_retries=2), None, "retries is 2"),
        ("retries>0", summary(GIB), None, None),
        ("findings>0", summary(GIB, findings=[finding(holder="a")]), None, "findings is 1"),
        ("findings>0", summary(GIB, findings=[finding(severity=Severity.INFO)]), None, None),
        ("new-findings>0", summary(GIB, findings=[finding(holder="a", line=9)]),
         summary(GIB, findings=[finding(holder="a", line=3)]), None),
        ("new-findings>0", summary(GIB, findings=[finding(holder="b")]),
         summary(GIB, findings=[finding(holder="a")]), "new-findings is 1"),
    ],
)  # fmt: skip
def test_conditions(text: str, run: Summary, baseline: Summary | None, says: str | None) -> None:
    """A condition fails above its limit, absolute or against the baseline, and says both figures."""
    failure = Condition.parse(text).failure(run, baseline)
    assert failure is None if says is None else says in (failure or "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("peak", "write it like"),
        ("memory>3GiB", "write it like"),
        ("peak>3%", "write +3%"),
        ("peak>lots", "is not a size"),
        ("findings>few", "invalid literal"),
        ("peak[fit]>1GiB", "the stages are"),
        ("findings[train]>0", "only peak and host"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, says: str) -> None:
    """The error has the text and what would be valid."""
    with pytest.raises(MemGuardError, match=says.replace("+", r"\+")):
        Condition.parse(text)


def test_figures_that_are_not_there_are_an_error() -> None:
    """A condition that cannot be held is no pass."""
    with pytest.raises(MemGuardError, match="--compare"):
        Condition.parse("peak>+3%").failure(summary(1), None)
    with pytest.raises(MemGuardError, match="no batch of validation"):
        Condition.parse("peak[validation]>1GiB").failure(summary(1), None)
    with pytest.raises(MemGuardError, match="did not measure"):
        Condition.parse("reserved>1GiB").failure(summary(1), None)

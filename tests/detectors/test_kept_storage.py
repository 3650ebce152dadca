"""What is said of tensors that pile up where their graphs were told already."""

from __future__ import annotations

from dataclasses import replace

from memguard.detectors.kept_storage import OutputsAccumulate
from memguard.facts import KeptOutputs, RetainedGraphs
from memguard.findings import Severity
from memguard.stats import Stage
from tests.detectors.evidence import AT, GIB, MIB, PLACE, judge, record, run_of

KEPT = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=8 * MIB, bytes_per_batch=0.4 * MIB, bounded=False)
GRAPHS = RetainedGraphs(**AT, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3)


def test_tensors_that_keep_their_graphs_are_one_cause() -> None:
    """MG101 told the statement; detached, it is to be seen whether they pile up still."""
    run = run_of(batches_left=20)
    (alone,) = judge(OutputsAccumulate(), KEPT, run=run)
    assert alone.severity is Severity.WARNING
    called = replace(GRAPHS, place=replace(PLACE, caller="train.py:90"))
    assert judge(OutputsAccumulate(), called, KEPT, run=run) == []


def test_another_cause_is_told_beside_them() -> None:
    """Another line or holder, the same line in validation, a roll-out that is only remarked on."""
    run = run_of(batches_left=20)
    for graphs in (
        replace(GRAPHS, place=replace(PLACE, line=(PLACE.line or 0) + 1)),
        replace(GRAPHS, place=replace(PLACE, holder="another")),
        replace(GRAPHS, stage=Stage.VALIDATION),
        replace(GRAPHS, carried=True, rolled_out=True),
    ):
        assert len(judge(OutputsAccumulate(), graphs, KEPT, run=run)) == 1


def test_what_will_not_fit_is_told_all_the_same() -> None:
    """Critical is more than was said."""
    kept = replace(KEPT, bytes=2 * GIB, bytes_per_batch=100.0 * MIB)
    (finding,) = judge(OutputsAccumulate(), record(0), GRAPHS, kept)
    assert finding.severity is Severity.CRITICAL

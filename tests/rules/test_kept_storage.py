"""What is said of tensors that pile up where their graphs were told already, and of weights gathered from all ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import GatheredWeights, KeptOutputs, ModelCopies, RetainedGraphs
from memguard.records.findings import Severity
from memguard.records.stats import Stage
from memguard.rules import ALL_RULES
from memguard.rules.kept_storage import OutputsAccumulate
from tests.rules.evidence import AT, GIB, MIB, PLACE, judge, record, run_of

KEPT = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=8 * MIB, bytes_per_batch=0.4 * MIB, bounded=False)
GRAPHS = RetainedGraphs(**AT, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3)


def test_what_will_not_fit_is_told_all_the_same() -> None:
    """Critical is more than was said."""
    kept = replace(KEPT, bytes=2 * GIB, bytes_per_batch=100.0 * MIB)
    (finding,) = judge(OutputsAccumulate(), record(0), kept)
    assert finding.severity is Severity.CRITICAL


def test_what_takes_a_very_long_run_to_fill_the_device_is_a_remark() -> None:
    """A small feature of each batch, kept for a score at the end, is no leak worth a warning; ten times as much is."""
    run = run_of()
    assert run.device_total_bytes
    little = run.device_total_bytes / 90_000
    (small,) = judge(OutputsAccumulate(), replace(KEPT, bytes=round(20 * little), bytes_per_batch=little), run=run)
    (large,) = judge(OutputsAccumulate(), replace(KEPT, bytes_per_batch=10 * little), run=run)
    assert (small.severity, large.severity) == (Severity.INFO, Severity.WARNING)


def test_a_warning_is_critical_once_the_floor_shows_that_the_device_fills() -> None:
    """In a run whose length nobody knows as well, and only if what was warned of is most of the growth."""
    growth = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]
    for each, told in ((40 * MIB, [Severity.WARNING, Severity.CRITICAL]), (4 * MIB, [Severity.WARNING])):
        found = judge(OutputsAccumulate(), replace(KEPT, bytes=20 * each, bytes_per_batch=float(each)), *growth)
        assert [claim.severity for claim in found] == told


def test_lists_that_are_filled_side_by_side_are_one_warning() -> None:
    """Predictions and targets of one metric: what another look finds of it is a remark, and the first may name both."""
    run = run_of(batches_left=20)
    preds = replace(KEPT, place=replace(PLACE, holder="Metric.preds"))
    target = replace(KEPT, place=replace(PLACE, holder="Metric.target", line=(PLACE.line or 0) + 1))
    first, second = judge(OutputsAccumulate(), preds, target, run=run)
    assert (first.severity, second.severity) == (Severity.WARNING, Severity.INFO)
    assert "`Metric.preds`" in second.message
    (both,) = judge(OutputsAccumulate(), replace(preds, beside=("Metric.target",)), run=run)
    assert both.holder == "Metric.preds" and "`Metric.target` beside it" in both.message


def test_lists_of_other_owners_or_lines_are_causes_of_their_own() -> None:
    """Another object's, one further down, one of another stage; of plain variables only the very next line's."""
    run = run_of(batches_left=20)
    line, preds = PLACE.line or 0, replace(KEPT, place=replace(PLACE, holder="Metric.preds"))
    for other in (
        replace(KEPT, place=replace(PLACE, holder="Cache.rows", line=line + 1)),
        replace(KEPT, place=replace(PLACE, holder="Metric.target", line=line + 9)),
        replace(KEPT, place=replace(PLACE, holder="Metric.target", line=line + 1), stage=Stage.VALIDATION),
        replace(KEPT, place=replace(PLACE, holder="rows", line=line + 1)),
    ):
        assert [f.severity for f in judge(OutputsAccumulate(), preds, other, run=run)] == [Severity.WARNING] * 2
    plain, near = replace(KEPT, place=replace(PLACE, holder="preds")), replace(PLACE, holder="labels")
    for gap, severity in ((1, Severity.INFO), (2, Severity.WARNING)):
        other = replace(KEPT, place=replace(near, line=line + gap))
        assert judge(OutputsAccumulate(), plain, other, run=run)[1].severity is severity


def test_a_memory_of_so_many_samples_that_fit_is_no_warning() -> None:
    """However much of the device it has; one that will have more than there is, or nobody knows what, is."""
    large = replace(KEPT, bytes=10 * GIB, bytes_per_batch=512.0 * MIB, bounded=True)
    judged = {
        capacity: judge(OutputsAccumulate(), record(0), replace(large, capacity=capacity), run=run_of(batches_left=0))
        for capacity in (20, 40, 60, None)
    }
    severities = {capacity: found[0].severity for capacity, found in judged.items()}
    assert severities == {20: Severity.INFO, 40: Severity.INFO, 60: Severity.WARNING, None: Severity.WARNING}


@pytest.mark.parametrize(("tensors", "says"), [(64, "it is full, and grows no further"), (63, "more with every batch")])
def test_what_is_full_grows_no_further(tensors: int, says: str) -> None:
    """A window of the last rows, say; short of its limit it still grows."""
    window = replace(KEPT, tensors=tensors, capacity=64, bytes=256 * MIB, bytes_per_batch=16.0 * MIB, bounded=True)
    (found,) = judge(OutputsAccumulate(), record(0), window, run=run_of(peak_bytes=10 * GIB))
    assert says in found.message and found.severity is Severity.INFO


def test_a_limit_beyond_the_device_is_none() -> None:
    """What it bounds is judged as if nothing bounded it, and the message says what it comes to."""
    run = run_of(peak_bytes=10 * GIB)
    young = replace(KEPT, tensors=16, bytes=256 * MIB, bytes_per_batch=16.0 * MIB, bounded=True)
    beyond, within = replace(young, capacity=100_000), replace(young, capacity=100)
    (found,) = judge(OutputsAccumulate(), record(0), beyond, run=run)
    assert found.severity is Severity.CRITICAL
    assert "its limit of 100,000 comes to 1.53 TiB, more than there is room for" in found.message
    assert judge(OutputsAccumulate(), record(0), within, run=run)[0].severity is Severity.INFO


RULE = next(rule for rule in ALL_RULES if rule.code == "MG308")
WHOLE = ModelCopies(**AT, copies=1, bytes=2 * GIB, holders=("Exporter.full",), gathered=True)
LEFT = GatheredWeights(**AT, parameters=12, bytes=2 * GIB, name="Trainer.reference")
SMALL = run_of(peak_bytes=4 * GIB)


def test_whole_weights_of_a_sharded_model_are_a_warning_by_their_share_of_the_peak() -> None:
    """A single copy of an ordinary model may be wanted; ranks shard one so that none holds all of it."""
    (claim,) = judge(RULE(), WHOLE, run=SMALL)
    assert claim.severity is Severity.WARNING and "gathered from all ranks" in claim.message
    assert "Exporter.full" in claim.message and "cpu_offload=True" in claim.advice
    (mild,) = judge(RULE(), replace(WHOLE, bytes=300 * MIB), run=SMALL)
    assert mild.severity is Severity.INFO
    (copy,) = judge(RULE(), replace(WHOLE, gathered=False), run=SMALL)
    assert copy.severity is Severity.INFO and "1 copy of" in copy.message


def test_weights_that_stay_gathered_name_the_model_and_both_ways_out() -> None:
    """The finding stands where the model is called, and its holder is the model."""
    (claim,) = judge(RULE(), LEFT, run=SMALL)
    assert (claim.severity, claim.holder, claim.line) == (Severity.WARNING, "Trainer.reference", 41)
    assert "12 weights" in claim.message and "`Trainer.reference`" in claim.message
    assert "call reference.reshard()" in claim.advice and "reshard_after_forward=True" in claim.advice

"""For each rule, evidence that comes near and must not make it speak (or not above INFO)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import (
    AutocastOpen,
    CheckpointKept,
    CompiledGraphs,
    EmptyCacheCalls,
    FreedByCollector,
    KeptOutputs,
    LargeLocals,
    LargeLogits,
    ModelCopies,
    OptimizerStateAhead,
    PreviousOutputsAlive,
    RankPeaks,
    ReboundTensor,
    SavedAfterBackward,
    StaleGradients,
    UnusedGraphs,
    ViewsPinStorage,
)
from memguard.records.findings import Severity
from memguard.records.stats import SlowStats, Stage
from memguard.rules import ALL_RULES
from tests.rules.evidence import AT, GIB, GRAPHS, MIB, Evidence, judge, record, records, run_of, slow_readings, told_by

RULES = {rule.code: rule for rule in ALL_RULES}

SILENT: dict[str, Evidence] = {
    "MG101": told_by(replace(GRAPHS, carried=True)),
    "MG102": told_by(GRAPHS),
    "MG103": told_by(SavedAfterBackward(**AT, bytes=200 * MIB, tensors=30)),
    "MG104": told_by(GRAPHS),
    "MG105": told_by(GRAPHS),
    "MG106": told_by(GRAPHS),
    "MG201": told_by(UnusedGraphs(**AT, module="Teacher", count=5, frozen=True)),
    "MG202": told_by(UnusedGraphs(**AT, module="Net", count=3)),
    "MG301": told_by(record(0), KeptOutputs(**AT, tensors=5, first_batch=0, bytes=GIB, bytes_per_batch=200.0 * MIB)),
    "MG302": told_by(ViewsPinStorage(**AT, views=20, used_bytes=300 * MIB, pinned_bytes=900 * MIB)),
    "MG303": told_by(*[PreviousOutputsAlive(**AT, bytes=2 * GIB, peak_in_forward=False)] * 3),
    "MG304": told_by(LargeLocals(**AT, names=("x",), bytes=2 * MIB)),
    "MG305": told_by(record(0), ReboundTensor(**AT, bytes=MIB)),
    "MG306": told_by(FreedByCollector(**AT, graphs=1, bytes=MIB)),
    "MG307": told_by(GRAPHS),
    "MG308": told_by(GRAPHS),
    "MG309": told_by(record(7), StaleGradients(**AT, bytes=MIB, zeroed=True)),
    "MG310": told_by(
        LargeLogits(
            **AT,
            logits_bytes=2 * GIB,
            float32_bytes=4 * GIB,
            width=128_000,
            dtype="bfloat16",
            peak_after_forward=False,
            extra_bytes=0,
        )
    ),
    "MG311": told_by(GRAPHS),
    "MG312": told_by(GRAPHS),
    "MG313": told_by(GRAPHS),
    "MG401": records(200, lambda i: {"reserved_peak_bytes": 18 * GIB, "active_peak_bytes": 8 * GIB}),
    "MG402": records(40, lambda i: {"num_alloc_retries": int(i == 3)}),
    "MG403": told_by(EmptyCacheCalls(**AT, calls=40, batches=4000)),
    "MG404": records(100, lambda i: {"active_peak_bytes": (14 if i % 10 == 0 else 10) * GIB}),
    "MG405": told_by(CompiledGraphs(**AT, graphs=3), CompiledGraphs(**AT, graphs=9)),
    "MG501": records(600, lambda i: {"allocated_end_bytes": 4 * GIB + 400 * (i % 40) * MIB // 40}),
    "MG502": told_by(
        OptimizerStateAhead(
            **AT, optimizer="AdamW", state_bytes=4 * GIB, temporary_bytes=0, allocated_bytes=GIB, peak_bytes=16 * GIB
        )
    ),
    "MG503": records(100, lambda i: {"allocated_peak_bytes": GIB * (1 + i % 5)}),
    "MG504": records(10, lambda i: {"allocated_peak_bytes": 22 * GIB}),
    "MG601": records(10, lambda i: {"device_used_bytes": 13 * GIB}),
    "MG602": told_by(GRAPHS),
    "MG603": told_by(RankPeaks(**AT, peaks=((0, 13 * GIB), (1, 12 * GIB)))),
    "MG701": lambda rule: judge(
        rule,
        *(record(i, host_rss_bytes=4 * GIB + (i % 90) * 20 * MIB) for i in range(900)),
        run=run_of(slow=SlowStats(host_limit_bytes=32 * GIB, host_used_bytes=20 * GIB), batches_left=50_000),
    ),
    "MG702": slow_readings(lambda i: {"workers_rss_bytes": 2 * GIB, "host_available_bytes": 16 * GIB}),
    "MG703": slow_readings(lambda i: {"pinned_bytes": 2 * GIB, "host_available_bytes": 16 * GIB}),
    "MG704": slow_readings(
        lambda i: {"open_files": 60 + i % 3, "shm_free_bytes": 8 * GIB, "shm_total_bytes": 16 * GIB}, per_reading=30
    ),
}


@pytest.mark.parametrize("code", sorted(RULES))
def test_a_near_miss_is_silent(code: str) -> None:
    """What only looks like the pattern yields nothing."""
    assert SILENT[code](RULES[code]()) == []


@pytest.mark.parametrize(("mib", "severity"), [(4, Severity.INFO), (64, Severity.WARNING)])
def test_losses_with_the_storage_of_their_elements_warn_where_it_is_much(mib: int, severity: Severity) -> None:
    """`mse_loss` gives a number in a storage as large as its input: 64 MiB a batch fill a device soon, 4 do not."""
    fact = KeptOutputs(
        **AT, tensors=12, first_batch=0, bytes=12 * mib << 20, bytes_per_batch=mib << 20, bounded=False, numbers=True
    )
    (finding,) = judge(RULES["MG301"](), fact, run=run_of(batches_left=None))
    assert finding.severity is severity
    assert "12 numbers" in finding.message
    assert "clone()" in finding.advice


def test_mild_cases_are_remarks() -> None:
    """An average of weights, bounded outputs and evaluation's autocast are INFO."""
    mild = {
        "MG308": told_by(ModelCopies(**AT, copies=1, bytes=GIB, averaged=True)),
        "MG301": told_by(KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB // 4, bytes_per_batch=50_000.0)),
        "MG311": told_by(AutocastOpen(**{**AT, "stage": Stage.VALIDATION}, batches=20)),
        "MG603": told_by(RankPeaks(**AT, peaks=((0, 20 * GIB), (1, 12 * GIB)))),
    }
    for code, evidence in mild.items():
        assert [finding.severity for finding in evidence(RULES[code]())] == [Severity.INFO], code


def test_old_gradients_are_a_warning_where_their_room_is_needed() -> None:
    """On a nearly full device the gradients decide whether a batch fits."""
    fact = StaleGradients(**AT, bytes=2 * GIB, zeroed=False, peak_bytes=23 * GIB)
    (roomy,) = judge(RULES["MG309"](), record(7), fact)
    (full,) = judge(RULES["MG309"](), record(7, allocated_peak_bytes=23 * GIB), fact)
    assert (roomy.severity, full.severity) == (Severity.INFO, Severity.WARNING)
    early = replace(fact, peak_bytes=9 * GIB)  # the peak comes after the forward
    (later,) = judge(RULES["MG309"](), record(7, allocated_peak_bytes=23 * GIB), early)
    assert later.severity is Severity.INFO
    assert judge(RULES["MG309"](), record(7), early) == []  # and there is room
    assert judge(RULES["MG309"](), record(7), replace(fact, lightning=True)) == []  # its own order of calls


def test_a_pile_of_copies_is_a_warning_where_it_matters() -> None:
    """Several under one name warn from a hundredth of the device on, unless they end with a round of calls."""
    severities = [
        judge(RULES["MG308"](), ModelCopies(**AT, copies=4, bytes=nbytes, holders=("best",), passing=passing))[
            0
        ].severity
        for nbytes, passing in ((64 * MIB, False), (GIB, False), (GIB, True), (8 * GIB, True))
    ]
    assert severities == [Severity.INFO, Severity.WARNING, Severity.INFO, Severity.WARNING]


def test_copies_in_a_container_that_has_a_limit_are_a_warning_where_they_are_large() -> None:
    """A window of the last few weights does not pile up."""
    window = ModelCopies(**AT, copies=24, bytes=GIB, holders=("window",), limited=True)
    (few,) = judge(RULES["MG308"](), window)
    (large,) = judge(RULES["MG308"](), replace(window, bytes=8 * GIB))
    assert (few.severity, large.severity) == (Severity.INFO, Severity.WARNING)


def test_a_checkpoint_is_a_warning_where_it_matters() -> None:
    """From a hundredth of the device on; where the device is the host, nobody is told to load it there."""
    small = CheckpointKept(**AT, bytes=64 * MIB)
    (little,) = judge(RULES["MG312"](), small)
    (much,) = judge(RULES["MG312"](), replace(small, bytes=GIB))
    assert (little.severity, much.severity) == (Severity.INFO, Severity.WARNING)
    (on_host,) = judge(RULES["MG312"](), small, run=run_of(device="cpu"))
    assert "loaded into memory" in on_host.message and "map_location" not in on_host.advice


def test_a_guarded_evaluation_is_still_told() -> None:
    """Where the guard prevents the graph, MG201 says so, and that memguard does it."""
    (finding,) = judge(RULES["MG201"](), UnusedGraphs(**AT, module="Net", count=0, prevented=True))
    assert finding.severity is Severity.WARNING
    assert "memguard does it for you" in finding.message


def test_growth_that_was_named_is_not_told_twice() -> None:
    """Where kept outputs account for the growth, MG501 leaves the word to MG301."""
    growth = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]
    named = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB, bytes_per_batch=38.0 * MIB, bounded=False)
    assert [finding.severity for finding in judge(RULES["MG501"](), *growth)] == [Severity.CRITICAL]
    assert judge(RULES["MG501"](), named, *growth) == []


def test_what_was_told_as_bounded_is_critical_when_it_will_not_fit() -> None:
    """What MG301 only remarked on, for something seemed to end it, is told anew once the limit is in sight."""
    growth = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]
    remarked = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB, bytes_per_batch=38.0 * MIB, bounded=True)
    mild, critical = judge(RULES["MG301"](), remarked, *growth)
    assert (mild.severity, critical.severity) == (Severity.INFO, Severity.CRITICAL)
    assert (critical.line, critical.cause) == (remarked.place.line, mild.cause)
    other = replace(remarked, bytes_per_batch=0.5 * MIB)  # not what makes it grow
    assert len(judge(RULES["MG301"](), other, *growth)) == 1
    flat = [record(i, allocated_end_bytes=4 * GIB + 40 * min(i, 60) * MIB) for i in range(300)]
    assert len(judge(RULES["MG301"](), remarked, *flat)) == 1
    memory = replace(remarked, capacity=40)  # all that a replay memory can hold has room
    assert len(judge(RULES["MG301"](), memory, *growth)) == 1


def test_what_never_ends_is_critical_after_the_same_batches_whenever_it_was_remarked_on() -> None:
    """Six windows after the first 32 batches, though the remark came in the eighteenth: a cache that never hits."""
    remarked = KeptOutputs(**{**AT, "batch": 17}, tensors=12, first_batch=5, bytes=GIB, bytes_per_batch=90.0 * MIB)
    growth = [record(i, allocated_end_bytes=4 * GIB + 90 * i * MIB) for i in range(160)]
    mild, critical = judge(RULES["MG301"](), *growth[:17], remarked, *growth[17:])
    assert (mild.severity, critical.severity) == (Severity.INFO, Severity.CRITICAL)
    assert critical.batch < 150


def test_a_peak_far_above_the_logits_is_not_theirs() -> None:
    """Gradients or a workspace of the backward made it: a hundred times a float32 copy."""
    fact = LargeLogits(
        **AT,
        logits_bytes=GIB // 4,
        float32_bytes=GIB // 4,
        width=16_384,
        dtype="float32",
        peak_after_forward=True,
        extra_bytes=20 * GIB,
    )
    assert judge(RULES["MG310"](), fact) == []
    assert judge(RULES["MG310"](), replace(fact, extra_bytes=GIB)) != []


def test_what_a_backward_keeps_while_its_batch_goes_on_is_a_remark() -> None:
    """Once may be a look at the graph; a computation outside all models may have needed it again."""
    fact = SavedAfterBackward(**AT, bytes=GIB, tensors=3, same_batch=True)
    assert judge(RULES["MG103"](), fact) == []
    (finding,) = judge(RULES["MG103"](), fact, fact)
    assert finding.severity is Severity.INFO and "of the same batch" in finding.message


def test_copies_of_logits_are_judged_by_their_share_of_the_device() -> None:
    """Few classes are no excuse where the copies make the peak; small ones are no more than a remark, or none."""
    fact = LargeLogits(
        **AT,
        logits_bytes=GIB // 2,
        float32_bytes=GIB,
        width=12_000,
        dtype="bfloat16",
        peak_after_forward=True,
        extra_bytes=3 * GIB,
        upcast=True,
        peak_bytes=5 * GIB,
    )
    told = {
        size: [
            found.severity for found in judge(RULES["MG310"](), replace(fact, float32_bytes=size, extra_bytes=3 * size))
        ]
        for size in (2 * GIB, GIB, GIB // 4, GIB // 16)
    }
    assert told == {2 * GIB: [Severity.WARNING], GIB: [Severity.INFO], GIB // 4: [Severity.INFO], GIB // 16: []}

"""For each rule, the smallest evidence that must make it speak: facts and records made by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from memguard.records.claims import Claim
from memguard.records.facts import (
    AutocastOpen,
    CheckpointKept,
    CompiledGraphs,
    EmptyCacheCalls,
    ExceptionHolds,
    Fact,
    FreedByCollector,
    FunctionContextHolds,
    GradientsWithGraph,
    InputSize,
    KeptOutputs,
    LargeLocals,
    LargeLogits,
    MicroBatchGraphs,
    ModelCalled,
    ModelCopies,
    OptimizerStateAhead,
    OtherDevice,
    Place,
    PreviousOutputsAlive,
    RankPeaks,
    ReboundTensor,
    RetainedGraphs,
    SavedAfterBackward,
    StaleGradients,
    UnreadStorages,
    UnusedGraphs,
    ViewsPinStorage,
)
from memguard.records.stats import BatchRecord, Run, SlowStats, Stage
from memguard.rules.arbiter import severity_of
from memguard.rules.interface import Rule

MIB, GIB = 1024**2, 1024**3
TOTAL = 24 * GIB
PLACE = Place(file="/home/me/train.py", line=41, function="main", holder="history", source="history.append(loss)")
AT: dict[str, Any] = {"batch": 7, "stage": Stage.TRAIN, "place": PLACE}

Evidence = Callable[[Rule], list[Claim]]


def run_of(**changes: Any) -> Run:
    run = Run(device="cuda:0", device_total_bytes=TOTAL, limit_bytes=TOTAL, batches_left=5000)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def record(batch: int, **changes: Any) -> BatchRecord:
    base = BatchRecord(
        batch=batch,
        stage=Stage.TRAIN,
        time=float(batch),
        seconds=0.1,
        allocated_peak_bytes=10 * GIB,
        allocated_end_bytes=4 * GIB,
        reserved_bytes=12 * GIB,
        reserved_peak_bytes=12 * GIB,
        active_peak_bytes=10 * GIB,
        device_used_bytes=12 * GIB,
        num_alloc_retries=0,
    )
    return replace(base, **changes)


def judge(rule: Rule, *evidence: Fact | BatchRecord, run: Run | None = None) -> list[Claim]:
    """What a rule says of facts and records, in their order, as severe as the arbiter finds it."""
    run, found = run or run_of(), list[Claim]()
    for thing in evidence:
        if isinstance(thing, Fact):
            if isinstance(thing, ModelCalled):
                run.calls.setdefault(thing.stage, thing.place)
            found += weighed(rule.learn(thing, run), run)
            continue
        run.peak_bytes = max(run.peak_bytes or 0, thing.allocated_peak_bytes or 0)
        found += weighed(rule.observe(thing, run), run)
    return found + weighed(rule.finish(run), run)


def weighed(claims: Iterable[Claim], run: Run) -> list[Claim]:
    """Claims as severe as the arbiter finds them; those that are not worth a word are left out."""
    return [replace(claim, severity=found) for claim in claims if (found := severity_of(claim, run)) is not None]


def told_by(*facts: Fact | BatchRecord) -> Evidence:
    return lambda rule: judge(rule, *facts)


def records(count: int, changes: Callable[[int], dict[str, Any]]) -> Evidence:
    return lambda rule: judge(rule, *(record(i, **changes(i)) for i in range(count)))


def slow_readings(changes: Callable[[int], dict[str, Any]], per_reading: int = 1, count: int = 400) -> Evidence:
    def evidence(rule: Rule) -> list[Claim]:
        run, found = run_of(), []
        for i in range(count):
            if i % per_reading == 0:
                run.slow = SlowStats(num_workers=4, **changes(i))
            found += list(rule.observe(record(i), run))
        return found

    return evidence


def many(kind: Callable[..., Fact], count: int, **values: Any) -> Iterable[Fact]:
    return [kind(**{**AT, "batch": i}, **values) for i in range(count)]


GRAPHS = RetainedGraphs(**AT, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3, bytes=17 * MIB, backward=False)

EVIDENCE: dict[str, Evidence] = {
    "MG101": told_by(GRAPHS),
    "MG102": told_by(replace(GRAPHS, carried=True)),
    "MG103": told_by(*many(SavedAfterBackward, 2, bytes=200 * MIB, tensors=30)),
    "MG104": told_by(GradientsWithGraph(**AT, parameters=12, bytes=40 * MIB)),
    "MG105": told_by(FunctionContextHolds(**AT, function_name="Square", attributes=("x",), bytes=8 * MIB, cycle=False)),
    "MG106": told_by(MicroBatchGraphs(**AT, graphs=7, bytes=200 * MIB, saves=True, peak_bytes=600 * MIB)),
    "MG201": told_by(UnusedGraphs(**AT, module="Net", count=3, bytes=800 * MIB)),
    "MG202": told_by(UnusedGraphs(**AT, module="Teacher", count=5, bytes=800 * MIB, frozen=True)),
    "MG301": told_by(
        record(0),
        KeptOutputs(
            **{**AT, "stage": Stage.VALIDATION},
            tensors=20,
            first_batch=0,
            bytes=2 * GIB,
            bytes_per_batch=100.0 * MIB,
            batches_left=500,
        ),
    ),
    "MG302": told_by(ViewsPinStorage(**AT, views=20, used_bytes=1 * MIB, pinned_bytes=900 * MIB)),
    "MG303": told_by(*many(PreviousOutputsAlive, 2, bytes=2 * GIB, peak_in_forward=True)),
    "MG304": told_by(LargeLocals(**AT, names=("images", "features"), bytes=2 * GIB)),
    "MG305": told_by(record(0), ReboundTensor(**AT, bytes=3 * GIB)),
    "MG306": told_by(*many(FreedByCollector, 3, graphs=2, bytes=900 * MIB, cycle="Trainer.loss <- Trainer")),
    "MG307": told_by(
        ExceptionHolds(**AT, exception="OutOfMemoryError", handling=True, names=("step() h",), bytes=3 * GIB)
    ),
    "MG308": told_by(ModelCopies(**AT, copies=3, bytes=6 * GIB, holders=("best", "last", "first"))),
    "MG309": told_by(record(7), StaleGradients(**AT, bytes=2 * GIB, zeroed=True)),
    "MG310": told_by(
        LargeLogits(
            **AT,
            logits_bytes=2 * GIB,
            float32_bytes=4 * GIB,
            width=128_000,
            dtype="bfloat16",
            peak_after_forward=True,
            extra_bytes=8 * GIB,
        )
    ),
    "MG311": told_by(AutocastOpen(**AT, batches=20, bytes=500 * MIB)),
    "MG312": told_by(CheckpointKept(**AT, bytes=3 * GIB)),
    "MG313": told_by(UnreadStorages(**AT, bytes=3 * GIB, forwards=8, peak_bytes=9 * GIB)),
    "MG401": records(
        60,
        lambda i: {
            "reserved_peak_bytes": 23 * GIB,
            "reserved_bytes": 23 * GIB,
            "active_peak_bytes": 15 * GIB,
            "device_used_bytes": 23 * GIB + 500 * MIB,
        },
    ),
    "MG402": records(120, lambda i: {"num_alloc_retries": int(i == 100)}),
    "MG403": told_by(EmptyCacheCalls(**AT, calls=40, batches=40, seconds=1.5)),
    "MG404": records(30, lambda i: {"active_peak_bytes": 14 * GIB}),
    "MG405": told_by(CompiledGraphs(**AT, graphs=3), CompiledGraphs(**AT, graphs=20, pool_bytes=4 * GIB)),
    "MG501": records(
        300,
        lambda i: {"allocated_end_bytes": 4 * GIB + 40 * i * MIB, "allocated_peak_bytes": 10 * GIB + 40 * i * MIB},
    ),
    "MG502": told_by(
        OptimizerStateAhead(
            **AT,
            optimizer="AdamW",
            state_bytes=14 * GIB,
            temporary_bytes=0,
            allocated_bytes=12 * GIB,
            peak_bytes=16 * GIB,
        )
    ),
    "MG503": lambda rule: judge(
        rule,
        *(
            thing
            for i in range(80)
            for thing in (
                InputSize(batch=i, stage=Stage.TRAIN, elements=1000 + 100 * (i % 20), largest_elements=20_000),
                record(i, allocated_peak_bytes=GIB + (1000 + 100 * (i % 20)) * 2 * MIB),
            )
        ),
    ),
    "MG504": records(10, lambda i: {"allocated_peak_bytes": 23 * GIB + 600 * MIB, "device_used_bytes": None}),
    "MG601": records(10, lambda i: {"device_used_bytes": 19 * GIB + i}),
    "MG602": told_by(OtherDevice(**AT, device="cuda:0", own_device="cuda:3", bytes=600 * MIB)),
    "MG603": told_by(RankPeaks(**AT, peaks=((0, 20 * GIB), (1, 12 * GIB)))),
    "MG701": lambda rule: judge(
        rule,
        *(record(i, host_rss_bytes=4 * GIB + 20 * i * MIB) for i in range(700)),
        run=run_of(slow=SlowStats(host_limit_bytes=32 * GIB, host_used_bytes=20 * GIB), batches_left=50_000),
    ),
    "MG702": slow_readings(
        lambda i: {"workers_rss_bytes": 2 * GIB + i * 30 * MIB, "host_available_bytes": 16 * GIB - i * 30 * MIB}
    ),
    "MG703": slow_readings(
        lambda i: {
            "pinned_bytes": 2 * GIB + i * 30 * MIB,
            "pinned_active_bytes": GIB,
            "host_available_bytes": 16 * GIB - i * 30 * MIB,
        }
    ),
    "MG704": slow_readings(lambda i: {"open_files": 40 + i}, per_reading=30),
}

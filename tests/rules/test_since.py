"""Since when what a rule reports goes on: at or before the record that showed it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import KeptOnHost, PinnedCacheGrows, SurvivingAllocations, UnusedGraphs, WorkerObjects
from memguard.records.stats import SlowStats, Stage
from memguard.rules import ALL_RULES
from memguard.rules.growth_test import WARM_UP, WINDOWS
from tests.rules.evidence import AT, GIB, MIB, Evidence, judge, record, run_of, told_by

RULES = {rule.code: rule for rule in ALL_RULES}
GROWS = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]
HOST_GROWS = [record(i, host_rss_bytes=GIB + i * MIB) for i in range(200)]
KEPT = KeptOnHost(**{**AT, "batch": 40}, elements=12, bytes=12 * MIB, bytes_per_batch=1.0 * MIB, first_batch=28)


def begins_at(begin: int, batches: int = 700) -> list[int]:
    """What is allocated after each batch of a run that grows from one on."""
    return [4 * GIB + 20 * MIB * max(0, batch - begin) for batch in range(batches)]


def judged_slowly(rule_code: str, name: str) -> list[tuple[int | None, int]]:
    """Of a rule on readings of which one comes with every second batch and grows from the 100th on."""
    rule, run, found = RULES[rule_code](), run_of(), []
    for batch in range(400):
        if batch % 2 == 0:
            grown = 60 * MIB * max(0, batch - 100)
            run.slow = SlowStats(num_workers=4, host_available_bytes=24 * GIB - grown, **{name: GIB + grown})
        found += rule.observe(record(batch), run)
    return [(claim.since, claim.batch) for claim in found]


@pytest.mark.parametrize("begin", [150, 333])
def test_a_growth_begins_with_its_first_window(begin: int) -> None:
    """Within a window of the batch where it begins; records between those of training have numbers as well."""
    floors = [record(2 * batch, allocated_end_bytes=value) for batch, value in enumerate(begins_at(begin))]
    between = [record(2 * batch + 1, stage=Stage.VALIDATION) for batch in range(len(floors))]
    (told,) = judge(RULES["MG501"](), *(each for pair in zip(floors, between, strict=True) for each in pair))
    assert told.since is not None and told.since <= 2 * begin <= told.since + 2 * WINDOWS[0] < told.batch


def test_a_growth_without_a_beginning_is_as_old_as_the_run() -> None:
    """The batches of the warm-up are not judged, and those after them show nothing else."""
    (told,) = judge(RULES["MG501"](), *GROWS)
    assert told.since == 0 and told.batch > WARM_UP
    line = SurvivingAllocations(**AT, bytes=16 * 40 * MIB, batches=8)
    late = [replace(each, batch=each.batch + 100) for each in GROWS]
    (told,) = judge(RULES["MG501"](), line, *late)
    assert told.since == told.batch == line.batch  # the line was seen before what it explains was judged


@pytest.mark.parametrize(
    ("code", "evidence", "since"),
    [
        ("MG201", told_by(UnusedGraphs(**AT, module="Net", count=3, first_batch=2)), 2),
        ("MG201", told_by(UnusedGraphs(**AT, module="Net", count=3)), None),
        ("MG201", told_by(UnusedGraphs(**AT, module="Net", count=3, first_batch=2, training=True)), 2),
        ("MG202", told_by(UnusedGraphs(**AT, module="Net", count=5, first_batch=2, frozen=True)), 2),
        ("MG701", told_by(KEPT), 28),
        ("MG701", told_by(*HOST_GROWS), 0),
        ("MG701", told_by(*(replace(each, host_rss_bytes=GIB) for each in HOST_GROWS[:32]), *HOST_GROWS[32:]), 15),
        ("MG702", told_by(WorkerObjects(**AT, workers=2, elements=3200, bytes=GIB)), None),
        ("MG703", told_by(replace(KEPT, pinned=True)), 28),
        (
            "MG703",
            told_by(PinnedCacheGrows(**AT, bytes=64 * MIB, active_bytes=0, before_bytes=16 * MIB, since_batch=3)),
            3,
        ),
    ],
)
def test_a_finding_says_since_when(code: str, evidence: Evidence, since: int | None) -> None:
    """Where the evidence tells; None where nobody knows."""
    (told,) = evidence(RULES[code]())
    assert told.since == since


@pytest.mark.parametrize(("code", "name"), [("MG702", "workers_rss_bytes"), ("MG703", "pinned_bytes")])
def test_a_growth_of_readings_begins_with_a_batch_too(code: str, name: str) -> None:
    """The batch that showed the reading first, within a window of readings."""
    ((since, batch),) = judged_slowly(code, name)
    assert since is not None and since <= 100 <= since + 16 < batch


def test_a_cache_of_workers_grows_since_the_least_that_was_read() -> None:
    """Their memory may fall first, as loaders settle."""
    rule, run, found = RULES["MG702"](), run_of(), []
    found += rule.learn(WorkerObjects(**AT, workers=2, elements=0, bytes=0, grows=True), run)
    for batch, private in enumerate((3, 2, 3)):
        run.slow = SlowStats(workers_rss_bytes=private * GIB, num_workers=2, host_available_bytes=16 * GIB)
        found += rule.observe(record(10 + batch), run)
    assert [(claim.since, claim.bytes) for claim in found] == [(11, GIB)]

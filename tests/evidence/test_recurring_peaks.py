from __future__ import annotations

from collections.abc import Iterable

from memguard.evidence.interface import ProbeContext
from memguard.evidence.sampling_budget import (
    EQUAL,
    FIRST_BATCHES,
    FIRST_PAUSE,
    LONGEST,
    LOOKS_AHEAD,
    PATIENCE,
    USUAL,
    RecurringPeaksProbe,
    SamplingBudget,
)
from memguard.records.stats import Stage
from tests.rules.evidence import record

USUAL_BYTES, HIGH_BYTES = 1000, 2000


def expected(peaks: Iterable[int | None], stage: Stage = Stage.TRAIN, *, at_once: int = 1) -> list[int]:
    """The training batches for which looks were asked, from records that come so many at a time."""
    watch, found = ProbeContext(), []
    probe = RecurringPeaksProbe(watch, lambda fact: None)
    records = [record(batch, allocated_peak_bytes=peak, stage=stage) for batch, peak in enumerate(peaks)]
    for begin in range(0, len(records), at_once):
        before, watch.expected = watch.expected, None
        probe.on_records(records[begin : begin + at_once])
        if watch.expected is None:
            watch.expected = before
        else:
            assert watch.expected >= min(begin + at_once, len(records)), "it has begun already"
            found.append(watch.expected)
    return found


def every(interval: int, batches: int, first: int = 40) -> list[int]:
    """Peaks of which one in so many is high."""
    return [HIGH_BYTES if i >= first and (i - first) % interval == 0 else USUAL_BYTES for i in range(batches)]


def test_the_next_of_equal_intervals_is_looked_at() -> None:
    """From the fourth high peak on, each time the next one."""
    assert expected(every(50, 40 + 50 * EQUAL)) == []
    assert expected(every(50, 400)) == [240, 290, 340, 390, 440]


def test_records_that_come_late_lead_to_one_that_is_still_to_come() -> None:
    """Batches that wait are worked out together: the next high peak may have gone by."""
    found = expected(every(50, 1000), at_once=128)
    assert found == sorted(found) and all((number - 40) % 50 == 0 for number in found)


def test_looks_are_few() -> None:
    """Twelve, and after a while twelve more: most high peaks come for a good reason."""
    found = expected(every(50, FIRST_PAUSE // 2))
    assert 0 < len(found) <= LOOKS_AHEAD
    many = expected(every(20, 40 + 20 * (EQUAL + LOOKS_AHEAD + 10)))
    assert len(many) == LOOKS_AHEAD
    later = expected(every(20, 4 * FIRST_PAUSE))
    assert len(later) == 2 * LOOKS_AHEAD


def test_nothing_is_expected_of_other_peaks() -> None:
    """Of unequal intervals, of a level that changes for good, of each third batch, of none at all, of evaluation."""
    assert expected([USUAL_BYTES + (HIGH_BYTES if i in (60, 100, 151, 203, 256, 310) else 0) for i in range(400)]) == []
    assert expected([USUAL_BYTES] * 100 + [HIGH_BYTES] * 300) == []
    assert expected(every(3, 400)) == []
    assert expected([USUAL_BYTES] * 400) == []
    assert expected(every(50, 400), Stage.VALIDATION) == []
    assert expected(every(LONGEST + 1, 5 * LONGEST)) == []


def test_a_device_without_numbers_is_given_up() -> None:
    """Records without an allocator's numbers tell nothing, soon for good."""
    watch = ProbeContext()
    deaf: list[str] = []
    watch.resubscribe = deaf.append
    probe = RecurringPeaksProbe(watch, lambda fact: None)
    probe.on_records([record(batch, allocated_peak_bytes=None) for batch in range(PATIENCE + 1)])
    assert deaf == ["on_records"]


def test_the_expected_batch_is_looked_at_whatever_that_costs() -> None:
    """And a row of batches that nobody looks at ends before it."""
    pace = SamplingBudget()
    for _ in range(FIRST_BATCHES + 1):
        pace.looks(Stage.TRAIN)
    pace.spend(10)
    number = FIRST_BATCHES + 1
    assert pace.quiet_batches_ahead(Stage.TRAIN, number + USUAL // 4) == USUAL // 4
    assert pace.quiet_batches_ahead(Stage.TRAIN, number - 1) == pace.quiet_batches_ahead(Stage.TRAIN)
    assert not pace.looks(Stage.TRAIN, expected=number + 1)
    assert pace.looks(Stage.TRAIN, expected=number + 1)

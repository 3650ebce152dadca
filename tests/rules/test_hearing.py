"""A record reaches the rules that can learn something of it, and only those."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from memguard.records.claims import Claim
from memguard.records.stats import BatchRecord, Run, SlowStats, Stage
from memguard.rules.interface import CROWDED, EVERY, PEAKS, READINGS, RETRIES, Rule
from memguard.rules.selection import Subscriptions

TOTAL = 1000


def rule(kind: int) -> Rule:
    class Hears(Rule):
        code: ClassVar[str] = f"MG{kind}"
        name: ClassVar[str] = "rule"
        hears: ClassVar[int] = kind

        def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
            return ()

    return Hears()


def heard(records: list[BatchRecord], run: Run, kind: int) -> list[int]:
    """The batches that a rule of one kind hears of."""
    hearing = Subscriptions([rule(kind)])
    return [record.batch for record in records if hearing.of(record, run)]


def batches(*peaks: int, **others: int) -> list[BatchRecord]:
    return [
        BatchRecord(
            batch=i, stage=Stage.TRAIN, time=0.0, seconds=0.1, allocated_peak_bytes=p, reserved_peak_bytes=p, **others
        )
        for i, p in enumerate(peaks)
    ]


def test_a_rule_of_every_record_misses_none() -> None:
    """Most general rules hear of each batch."""
    assert heard(batches(5, 5, 4), Run(device="cuda:0"), EVERY) == [0, 1, 2]


def test_a_rule_of_peaks_hears_of_new_highest_ones() -> None:
    """The first record counts; an equal or lower peak tells nothing new."""
    assert heard(batches(5, 5, 7, 6, 8), Run(device="cuda:0"), PEAKS) == [0, 2, 4]


def test_a_rule_of_readings_hears_of_each_reading_once() -> None:
    """The slow lane's reading is the same object until there is a newer one."""
    hearing, run = Subscriptions([rule(READINGS)]), Run(device="cuda:0")
    told = []
    for record in batches(5, 5, 5, 5):
        if record.batch == 2:
            run.slow = SlowStats(device_used_bytes=1)
        told.append(bool(hearing.of(record, run)))
    assert told == [True, False, True, False]


def test_a_rule_of_a_crowded_device_hears_of_its_end_too() -> None:
    """The record after the last full one is heard as well, so that a streak can end."""
    assert heard(batches(10, 900, 10, 10), Run(device="cuda:0", device_total_bytes=TOTAL), CROWDED) == [1, 2]


def test_what_others_hold_crowds_a_device() -> None:
    """Bytes in use beyond this process's reserved ones count."""
    records = batches(300, 300, device_used_bytes=900, reserved_bytes=300)
    assert heard(records, Run(device="cuda:0", device_total_bytes=TOTAL), CROWDED) == [0, 1]


def test_a_process_may_crowd_its_own_share() -> None:
    """Where set_per_process_memory_fraction leaves it only a part of the device."""
    run = Run(device="cuda:0", device_total_bytes=TOTAL, limit_bytes=TOTAL // 10)
    assert heard(batches(90, 10, 10), run, CROWDED) == [0, 1]


def test_a_rule_of_retries_hears_of_nothing_else() -> None:
    """A batch in which the allocator tried again."""
    records = [replace(record, num_alloc_retries=int(record.batch == 1)) for record in batches(5, 5, 5)]
    assert heard(records, Run(device="cuda:0"), RETRIES) == [1]

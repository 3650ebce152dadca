"""The record that is made of a batch's end."""

from __future__ import annotations

import pytest

from memguard.records.batch_ends import BatchEnd, RecordMaker
from memguard.records.stats import BatchRecord, MemoryStats, SlowStats, Stage


def test_each_number_stands_in_its_field() -> None:
    """A record has of the mark, of the statistics before and of those at its end what its fields say."""
    before = MemoryStats(allocated_bytes=1, num_alloc_retries=2, num_ooms=3, num_device_alloc=4, num_device_free=5)
    now = MemoryStats(
        allocated_bytes=10,
        allocated_peak_bytes=11,
        reserved_bytes=12,
        reserved_peak_bytes=13,
        active_peak_bytes=14,
        inactive_split_bytes=15,
        num_alloc_retries=22,
        num_ooms=33,
        num_device_alloc=44,
        num_device_free=55,
    )
    mark = BatchEnd(100, Stage.TEST, 101, 102, 103, 104.0, 105, 106, object())
    maker = RecordMaker()
    maker.last, maker.last_time = before, -3.0
    series: list[list[BatchRecord]] = []
    maker.make(series, [mark], lambda look: now, SlowStats(device_used_bytes=108))
    ((record,),) = series
    assert (record.batch, record.stage, record.epoch, record.index) == (100, Stage.TEST, 101, 102)
    assert (record.optimizer_steps, record.time, record.seconds, record.shapes) == (103, 104.0, 107.0, 105)
    assert (record.allocated_start_bytes, record.allocated_end_bytes, record.allocated_peak_bytes) == (1, 10, 11)
    assert (record.reserved_bytes, record.reserved_peak_bytes) == (12, 13)
    assert (record.active_peak_bytes, record.inactive_split_bytes) == (14, 15)
    assert (record.device_used_bytes, record.host_rss_bytes, record.device) == (108, 106, 0)
    assert (record.num_alloc_retries, record.num_ooms) == (20, 30)
    assert (record.num_device_alloc, record.num_device_free) == (40, 50)


def test_records_that_are_alike_come_together() -> None:
    """Equal looks, resident memory, stage and epoch make a series; numbers, times and shapes may differ."""
    low, high = MemoryStats(allocated_bytes=1), MemoryStats(allocated_bytes=2)
    looks = [low, low, low, high, high, high, high, high, low]
    marks = [BatchEnd(i, Stage.TRAIN, i // 7, None, i, float(i), i % 2, 5 + (i > 5), looks[i]) for i in range(9)]
    maker = RecordMaker()
    maker.last = low
    series: list[list[BatchRecord]] = []
    maker.make(series, marks, lambda look: look, SlowStats())
    assert [[record.batch for record in alike] for alike in series] == [[0, 1, 2], [3], [4, 5], [6], [7], [8]]
    for alike in series:
        memory = [(r.stage, r.epoch, r.allocated_start_bytes, r.allocated_end_bytes, r.host_rss_bytes) for r in alike]
        assert len(set(memory)) == 1


def test_what_a_look_raises_comes_after_the_records_before_it() -> None:
    """The device fails in the middle of a block: what came before is told."""

    def stats(look: object) -> MemoryStats:
        if look == "bad":
            raise RuntimeError("the device is gone")
        return MemoryStats()

    marks = [
        BatchEnd(i, Stage.TRAIN, None, None, i, float(i), None, None, "bad" if i == 2 else "good") for i in range(4)
    ]
    series: list[list[BatchRecord]] = []
    with pytest.raises(RuntimeError, match="gone"):
        RecordMaker().make(series, marks, stats, SlowStats())
    assert [record.batch for alike in series for record in alike] == [0, 1]

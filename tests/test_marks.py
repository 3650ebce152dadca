"""The record that is made of a batch's end."""

from __future__ import annotations

from memguard.marks import Mark, make_record
from memguard.stats import MemoryStats, SlowStats, Stage


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
    mark = Mark(100, Stage.TEST, 101, 102, 103, 104.0, 105, 106, object())
    record = make_record(mark, before, now, seconds=107.0, slow=SlowStats(device_used_bytes=108))
    assert (record.batch, record.stage, record.epoch, record.index) == (100, Stage.TEST, 101, 102)
    assert (record.optimizer_steps, record.time, record.seconds, record.shapes) == (103, 104.0, 107.0, 105)
    assert (record.allocated_start_bytes, record.allocated_end_bytes, record.allocated_peak_bytes) == (1, 10, 11)
    assert (record.reserved_bytes, record.reserved_peak_bytes) == (12, 13)
    assert (record.active_peak_bytes, record.inactive_split_bytes) == (14, 15)
    assert (record.device_used_bytes, record.host_rss_bytes, record.device) == (108, 106, 0)
    assert (record.num_alloc_retries, record.num_ooms) == (20, 30)
    assert (record.num_device_alloc, record.num_device_free) == (40, 50)

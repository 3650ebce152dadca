"""The end of a batch as it is taken in the loop, and the record that is made of it a little later. No torch."""

from __future__ import annotations

from typing import NamedTuple

from memguard.stats import BatchRecord, MemoryStats, SlowStats, Stage


class Mark(NamedTuple):
    """What only the very end of a batch knows; the rest of its record follows from that."""

    batch: int
    stage: Stage
    epoch: int | None
    position: int | None
    """Within stage and epoch."""
    optimizer_steps: int
    time: float
    shapes: int | None
    host_rss_bytes: int | None
    look: object
    """The backend's own (`memguard.backends.interface.Backend.mark`)."""


def make_record(mark: Mark, before: MemoryStats, now: MemoryStats, *, seconds: float, slow: SlowStats) -> BatchRecord:
    """The record of a batch.

    Args:
        mark: Its end.
        before: The statistics at the end of the batch before.
        now: Those at its own end.
        seconds: Its length.
        slow: The newest reading of the slow lane.
    """
    was = before.num_alloc_retries, before.num_ooms, before.num_device_alloc, before.num_device_free
    counts = now.num_alloc_retries, now.num_ooms, now.num_device_alloc, now.num_device_free
    if was == counts:
        retries, ooms, allocs, frees = _NOTHING if None not in was else [None if n is None else 0 for n in was]
    else:
        retries, ooms, allocs, frees = map(_delta, counts, was)
    return BatchRecord(  # by position: its order is checked in the tests
        mark.batch,
        mark.stage,
        mark.time,
        seconds,
        mark.epoch,
        mark.position,
        mark.optimizer_steps,
        mark.shapes,
        before.allocated_bytes,
        now.allocated_peak_bytes,
        now.allocated_bytes,
        now.reserved_bytes,
        now.reserved_peak_bytes,
        now.active_peak_bytes,
        now.inactive_split_bytes,
        slow.device_used_bytes,
        mark.host_rss_bytes,
        retries,
        ooms,
        allocs,
        frees,
    )


_NOTHING = (0, 0, 0, 0)


def _delta(now: int | None, before: int | None) -> int | None:
    """How far a cumulative counter came; one that somebody reset in between counts from zero."""
    if now is None:
        return None
    return now - before if before is not None and now >= before else now if before is not None else 0

"""The end of a batch as the loop takes it, and the records made from such ends. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, final

from memguard.records.stats import BatchRecord, MemoryStats, SlowStats, Stage


class BatchEnd(NamedTuple):
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


_N: TypeAlias = int | None
_Figures: TypeAlias = tuple[_N, _N, _N, _N, _N, _N, _N, _N, _N, _N, _N, _N, _N]


@final
class RecordMaker:
    """Makes records of marks, in their order: the memory of a batch lies between the look before it and its own.

    Most short batches are like the one before. Records that are alike are made together, so that whoever judges or
    writes them can do so for all of them at once.

    Attributes:
        last: The newest look.
        last_time: When it was taken.
    """

    def __init__(self) -> None:
        self.last = MemoryStats()
        self.last_time = 0.0

    def make(
        self,
        series: list[list[BatchRecord]],
        marks: Iterable[BatchEnd],
        stats: Callable[[object], MemoryStats],
        slow: SlowStats,
    ) -> None:
        """Makes the records of some marks.

        Args:
            series: Where they go: those that are alike in one list (`memguard.records.stats.Series`).
            marks: The ends of the batches.
            stats: Tells the statistics of a mark's look; what it raises comes out here, after the records before.
            slow: The newest reading of the slow lane.
        """
        figures: _Figures = (None,) * 13
        alike: list[BatchRecord] = []
        known: tuple[MemoryStats, MemoryStats] | None = None
        stage_of = epoch_of = rss_of = None
        for batch, stage, epoch, position, steps, time, shapes, rss, look in marks:
            before, now = self.last, stats(look)
            if (
                known is None
                or now is not known[1]
                or before is not known[0]
                or rss != rss_of
                or stage is not stage_of
                or epoch != epoch_of
            ):
                known, stage_of, epoch_of, rss_of = (before, now), stage, epoch, rss
                figures = _figures(before, now, slow, rss)
                series.append(alike := [])
            seconds, self.last, self.last_time = time - self.last_time, now, time
            seconds = seconds if seconds > 0.0 else 0.0
            # By position, in a third of the time: the order is checked in the tests.
            alike.append(BatchRecord(batch, stage, time, seconds, epoch, position, steps, shapes, *figures))


def _figures(before: MemoryStats, now: MemoryStats, slow: SlowStats, rss: int | None) -> _Figures:
    """A record's fields from `allocated_start_bytes` to `num_device_free`."""
    was = before.num_alloc_retries, before.num_ooms, before.num_device_alloc, before.num_device_free
    counts = now.num_alloc_retries, now.num_ooms, now.num_device_alloc, now.num_device_free
    retries, ooms, allocs, frees = map(_delta, counts, was)
    return (
        before.allocated_bytes,
        now.allocated_peak_bytes,
        now.allocated_bytes,
        now.reserved_bytes,
        now.reserved_peak_bytes,
        now.active_peak_bytes,
        now.inactive_split_bytes,
        slow.device_used_bytes,
        rss,
        retries,
        ooms,
        allocs,
        frees,
    )


def _delta(now: int | None, before: int | None) -> int | None:
    """How far a cumulative counter came; one that somebody reset in between counts from zero."""
    if now is None:
        return None
    return now - before if before is not None and now >= before else now if before is not None else 0

"""Host memory that is left, and readings of it that approach the limit."""

from __future__ import annotations

from collections import deque
from typing import final

from memguard.records.stats import BatchRecord, SlowStats
from memguard.rules.growth_test import GrowthTest, outlook
from memguard.text.units import format_bytes

SAMPLE_WINDOWS, SAMPLE_WARM_UP = (8, 32), 8
"""Of readings of the slow lane, one a second or every few."""
MOST_TIMES = 4096


def free_bytes(slow: SlowStats) -> int | None:
    """What is still free under the kernel's limit."""
    if slow.host_limit_bytes is not None and slow.host_used_bytes is not None:
        return max(slow.host_limit_bytes - slow.host_used_bytes, 0)
    return slow.host_available_bytes


def room_bytes(slow: SlowStats, own_bytes: int) -> int | None:
    """What a part of the host's memory could grow to: itself and what is still free."""
    free = free_bytes(slow)
    return None if free is None else own_bytes + free


def left(free: int | None) -> str:
    """The end of a sentence that says what is free, where that is known."""
    return "" if free is None else f"; {format_bytes(free)} are free"


@final
class SampledGrowth:
    """The growth test on readings of the slow lane: each counts once, however many batches see it."""

    def __init__(self) -> None:
        self._ratchet = GrowthTest(SAMPLE_WINDOWS, SAMPLE_WARM_UP)
        self._newest: SlowStats | None = None
        self._peak = 0
        self._times: deque[float] = deque(maxlen=MOST_TIMES)
        self.told = False
        self.since: int | None = None
        """The record at which the reported growth began."""

    def grows(self, slow: SlowStats, value: int | None, record: BatchRecord) -> float | None:
        """Bytes a second by which it grows, if that leads to the limit.

        Args:
            slow: The reading.
            value: What it says of the series.
            record: The first that shows it.
        """
        if self.told or value is None or slow is self._newest:
            return None
        self._newest = slow
        self._times.append(record.time)
        self._peak = max(self._peak, value)
        limit = room_bytes(slow, value)
        if not self._ratchet.push(value, 1, record.batch) or limit is None:
            return None
        found = outlook(self._ratchet, peak=self._peak, limit=limit, batches_left=None, epoch_left=None)
        self.told = found is not None
        if found is None:
            return None
        self.since = found.growth.since
        readings = max(min(found.growth.batches, len(self._times) - 1), 1)
        seconds = self._times[-1] - self._times[-1 - readings]
        return found.growth.rate * readings / seconds if seconds > 0 else found.growth.rate

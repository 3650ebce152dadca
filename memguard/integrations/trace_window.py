"""When to record the allocation history: while the device is nearly full and fragmented.

A failure in such a stretch can then be replayed under other settings of the allocator. The windows are short and grow
rarer, and no stacks are taken, so a run that lives close to the edge for days does not pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from memguard.records.stats import BatchRecord

FULL: Final = 0.7
"""Share of the limit that must be reserved."""
APART: Final = 0.1
"""Share of the reserved bytes that no tensor uses even at the peak."""
BATCHES: Final = 32
"""Length of a window."""
REST: Final = 256
"""Batches after a window in which a gap alone opens none; twice as many after each. A retry always opens one."""


@final
class TraceWindow:
    """Decides after each batch whether the history should be on."""

    def __init__(self) -> None:
        self.since: int | None = None
        """Batch at which the open window began."""
        self._left = 0
        self._resting = 0
        self._rest = REST

    def passes(self, records: Sequence[BatchRecord], limit_bytes: int | None) -> bool:
        """Whether some records change nothing and need not be shown: hardly ever is a device nearly full."""
        if self.since is not None or any(record.num_alloc_retries for record in records):
            return False
        if self._resting >= len(records):
            self._resting -= len(records)
            return True
        highest = max([record.reserved_peak_bytes or 0 for record in records])
        return not self._resting and (not limit_bytes or highest < FULL * limit_bytes)

    def wants_history(self, record: BatchRecord, limit_bytes: int | None) -> bool:
        """Whether the history should be on from now."""
        retried = bool(record.num_alloc_retries)
        if self._resting and not retried:
            self._resting -= 1
            return False
        if retried or _in_pieces(record, limit_bytes):
            if self.since is None:
                self.since, self._left, self._resting = record.batch + 1, BATCHES, 0
            elif retried:
                self._left = BATCHES
        if self.since is None:
            return False
        self._left -= 1
        if self._left < 0:
            self.since, self._resting, self._rest = None, self._rest, 2 * self._rest
            return False
        return True


def _in_pieces(record: BatchRecord, limit_bytes: int | None) -> bool:
    reserved = record.reserved_peak_bytes
    used = record.active_peak_bytes if record.active_peak_bytes is not None else record.allocated_peak_bytes
    if reserved is None or used is None or not limit_bytes:
        return False
    return reserved >= FULL * limit_bytes and reserved - used >= APART * reserved

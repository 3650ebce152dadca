"""Batches that take more memory at equal intervals: the next of them are sampled.

What a loop does in every fiftieth batch (targets from a frozen model, pictures for a log, a penalty) is met once in
hundreds of looks that come at intervals of their own. The record of each batch shows when it comes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import final

from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, Stage

HIGHER = 1.2
"""Times the usual peak, from which a batch stands out."""
SHORTEST, LONGEST = 5, 4096
"""Batches from one to the next: what comes more often is met by looks at the first batches."""
EQUAL = 3
"""Intervals in a row that are alike."""
USUAL = 16
"""Ordinary batches in a row, of which the largest peak is the usual one for those that follow."""
LOOKS = 12
"""Batches that are looked at so, whatever that costs; afterwards as many again, after ever longer whiles."""
FIRST_WAIT, LONGER = 1024, 4
PATIENCE = 128
"""Records without the numbers of an allocator after which there will be none."""


@final
class RecurringPeaksProbe(Probe):
    """Learns from the records at which training batches the peak is higher, and asks for a look at the next of them."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._seen = self._without = 0
        self._bar: float | None = None
        """Above it a peak stands out; None before the first ordinary batches."""
        self._ordinary = self._largest = 0
        """How many there were since the bar was set, and the largest peak of these."""
        self._higher: deque[int] = deque(maxlen=EQUAL + 1)
        """Training batches that stood out, by their numbers among training's."""
        self._left, self._wait, self._again = LOOKS, FIRST_WAIT, 0

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Follows the peaks."""
        found = False
        for record in records:
            if record.stage is not Stage.TRAIN:
                continue
            number, self._seen = self._seen, self._seen + 1
            peak = record.allocated_peak_bytes
            if peak is None:
                self._without += 1
                if self._without > PATIENCE:
                    self.unsubscribe("on_records")
                    return
                continue
            found = self._stands_out(number, peak) or found
        if found:
            self._expect()

    def _stands_out(self, number: int, peak: int) -> bool:
        if self._bar is not None and peak > self._bar:
            higher = self._higher
            if not higher or number - higher[-1] >= SHORTEST:
                higher.append(number)
                return True
            higher.clear()  # a level that changed, or no interval
        self._ordinary += 1
        if peak > self._largest:
            self._largest = peak
        if self._ordinary == USUAL:
            self._bar = HIGHER * self._largest
            self._ordinary = self._largest = 0
        return False

    def _expect(self) -> None:
        """Asks for a look at the next one, where intervals are equal."""
        higher, watch = self._higher, self.watch
        intervals = {after - before for before, after in itertools.pairwise(higher)}
        if len(higher) <= EQUAL or len(intervals) != 1 or self._seen < self._again:
            return
        (interval,) = intervals
        if interval > LONGEST:
            return
        watch.look_at(higher[-1] + interval * -((higher[-1] - self._seen) // interval))  # none before the next batch
        self._left -= 1
        if not self._left:
            self._left, self._again, self._wait = LOOKS, self._seen + self._wait, self._wait * LONGER

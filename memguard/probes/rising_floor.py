"""What begins long after the first batches: a floor that rises is a reason to look closely, however fast the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

from memguard.facts import Fact
from memguard.probes.interface import Probe, Watch
from memguard.stats import BatchRecord, Stage

WINDOW, RISES = 4, 5
"""Batches whose lowest end-of-batch value makes a floor, and floors in a row that lie above the one before."""
LONG_WINDOW, LONG_RISES = 64, 3
"""The same for what does not come with every few batches."""
LOOKS = 32
"""Batches that are looked at then, whatever that costs."""
FIRST_WAIT, LONGER = 256, 4
"""Batches until that may be asked for again, and by how many times that grows: most floors rise for a good reason."""
PATIENCE = 128
"""Records without the numbers of an allocator after which there will be none."""


@final
class RisingFloorProbe(Probe):
    """Asks for close looks where every few training batches leave more behind than the ones before, or every few dozen.

    In a loop of short batches one in a thousand is looked at: a list that begins to fill in the third epoch would show
    there when it is long.
    """

    name: ClassVar[str] = "rising floor"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._without = 0
        self._floors = (_Floor(WINDOW, RISES), _Floor(LONG_WINDOW, LONG_RISES))
        self._wait, self._again = FIRST_WAIT, 0

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Follows the floor."""
        for record in records:
            end = record.allocated_end_bytes
            if record.stage is not Stage.TRAIN:
                continue
            if end is None:
                self._without += 1
                if self._without > PATIENCE:
                    self.stop_hearing("on_records")
                    return
                continue
            rising = [floor.batches for floor in self._floors if floor.push(end)]
            if rising:
                self._ask(max(rising))

    def _ask(self, batches: int) -> None:
        watch = self.watch
        if watch.batch >= self._again and watch.batch > watch.dense_until:
            self._again, self._wait = watch.batch + self._wait, self._wait * LONGER
            watch.rose, watch.rises_since = watch.batch, max(watch.batch - batches, 0)
            watch.look_closely(LOOKS, surely=True)


@final
class _Floor:
    """The lowest values of windows of one length.

    Args:
        window: Batches.
        least: Rises in a row that tell something.
    """

    __slots__ = ("_floor", "_least", "_lowest", "_rises", "_seen", "_window")

    def __init__(self, window: int, least: int) -> None:
        self._window, self._least = window, least
        self._seen = self._rises = 0
        self._lowest: int | None = None
        self._floor: int | None = None

    def push(self, end: int) -> bool:
        """One more value; whether it ends a window, and as many floors as that lie each above the one before."""
        self._lowest = end if self._lowest is None or end < self._lowest else self._lowest
        self._seen += 1
        if self._seen % self._window:
            return False
        floor, self._floor, self._lowest = self._floor, self._lowest, None
        rose = floor is not None and self._floor is not None and self._floor > floor
        self._rises = self._rises + 1 if rose else 0
        return self._rises >= self._least

    @property
    def batches(self) -> int:
        """For how many it has been rising."""
        return self._rises * self._window

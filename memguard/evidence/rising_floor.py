"""A rising floor makes the probes sample, however late it begins and however fast the loop is.

So is one that jumps by a model's weights: a copy of them may have come, or a checkpoint that was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, Stage
from memguard.torch_objects.module_parts import parameters_of
from memguard.torch_objects.storages import storages_of

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
SETTLED = 64
"""Batches until the floor has everything that a loop begins with."""
JUMP_SHARE = 0.01
"""Of the device, by which the floor must rise to count as a jump; a model's weights, if they are more."""


@final
class RisingFloorProbe(Probe):
    """Asks for close looks where every few training batches leave more behind than the ones before, or every few dozen.

    In a loop of short batches one in a thousand is looked at: a list that begins to fill in the third epoch would show
    there when it is long.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._seen = self._without = 0
        self._floors = (_Floor(WINDOW, RISES), _Floor(LONG_WINDOW, LONG_RISES))
        self._level: int | None = None
        """The floor at the last jump, or what it fell to since."""
        self._weights = 0
        self._wait, self._again = FIRST_WAIT, 0

    def on_model(self, model: nn.Module) -> None:
        """A copy of it would be as large."""
        self._weights = max(self._weights, sum(storages_of(parameters_of(model)).values()))

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Follows the floor."""
        for record in records:
            end = record.allocated_end_bytes
            if record.stage is not Stage.TRAIN:
                continue
            if end is None:
                self._without += 1
                if self._without > PATIENCE:
                    self.unsubscribe("on_records")
                    return
                continue
            self._seen += 1
            ended = [floor for floor in self._floors if floor.push(end)]
            if ended:
                self._ask(max(floor.batches for floor in ended))
                self._follow_level()

    def _ask(self, batches: int) -> None:
        watch = self.watch
        if batches and watch.batch >= self._again and watch.batch > watch.dense_until:
            self._again, self._wait = watch.batch + self._wait, self._wait * LONGER
            watch.rose, watch.rises_since = watch.batch, max(watch.batch - batches, 0)
            watch.look_closely(LOOKS, surely=True)

    def _follow_level(self) -> None:
        """Asks for one look after a jump, and for the next after one that is twice as high."""
        floor = self._floors[0].floor
        if floor is None or self._seen < SETTLED:
            return
        level = self._level = floor if self._level is None else min(self._level, floor)
        if floor == level or not self._weights:
            return
        least = max(self._weights, int(JUMP_SHARE * (self.watch.device_total_bytes or 0)))
        if floor - level >= least << self.watch.jumps:
            self._level = floor
            self.watch.jumps += 1
            self.watch.look_closely(1, surely=True)


@final
class _Floor:
    """The lowest values of windows of one length.

    Args:
        window: Batches.
        least: Rises in a row that tell something.

    Attributes:
        floor: That of the last window.
    """

    __slots__ = ("_least", "_lowest", "_rises", "_seen", "_window", "floor")

    def __init__(self, window: int, least: int) -> None:
        self._window, self._least = window, least
        self._seen = self._rises = 0
        self._lowest: int | None = None
        self.floor: int | None = None

    def push(self, end: int) -> bool:
        """One more value; whether it ends a window."""
        self._lowest = end if self._lowest is None or end < self._lowest else self._lowest
        self._seen += 1
        if self._seen % self._window:
            return False
        floor, self.floor, self._lowest = self.floor, self._lowest, None
        rose = floor is not None and self.floor is not None and self.floor > floor
        self._rises = self._rises + 1 if rose else 0
        return True

    @property
    def batches(self) -> int:
        """For how many it has been rising, where the rises are enough to tell something; else 0."""
        return self._rises * self._window if self._rises >= self._least else 0

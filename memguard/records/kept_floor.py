"""Memory that stays allocated after the batches of one stage: how much it rose, and whether it ever fell. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, final

from memguard.records.stats import Series, Stage

LONGEST: Final = 4
"""Times the longest step so far after which no step is waited for any more."""
LEAST: Final = 64
"""Batches without a step that are waited for at least."""


@final
class StepFloor:
    """Replaces the value after a batch by the one after the newest optimizer step.

    What a step's micro-batches leave behind until it comes is no growth. Where each batch has its step, where nothing
    has stepped yet, and where no step comes any more, it is the batch's own value.
    """

    __slots__ = ("_longest", "_since", "_steps", "_value")

    def __init__(self) -> None:
        self._steps = self._since = self._longest = 0
        self._value: int | None = None

    def push(self, value: int, steps: int, times: int = 1) -> int:
        """The value that counts.

        Args:
            value: The one after a batch.
            steps: Optimizer steps of the run by then.
            times: Batches in a row after which it was the same.
        """
        if steps != self._steps:
            self._longest = max(self._longest, self._since + 1)
            self._steps, self._since, self._value = steps, 0, value
            return value
        self._since += times
        if self._value is None or self._since > max(LONGEST * self._longest, LEAST):
            return value
        return self._value


SETTLING: Final = 3
"""Batches of training after which gradients and optimizer states are there, which are kept by right."""
WINDOW: Final = 6
"""Batches after those whose lowest value is what training began with."""
LAST: Final = 3
"""Batches at the end whose lowest value is what it ended with: one of them may hold more for a moment."""
OVER: Final = 0.5
"""Share of what training began with, below which the model itself is gone: the program is over, or makes another."""
FALL: Final = 0.02
"""Share of the highest value so far by which it must fall to have fallen: allocators round."""


@final
class KeptFloor:
    """Follows the allocated bytes at the end of each batch of one stage; in training, at the end of each step.

    In training it is the rise from the first batches, once gradients and optimizer states are there, to the last ones;
    in other stages that within one pass, the largest.
    """

    __slots__ = (
        *("_batch", "_first", "_highest", "_last", "_seen", "_settles", "_stepped", "_steps"),
        *("fell", "from_bytes", "to_bytes"),
    )

    def __init__(self, stage: Stage) -> None:
        self._settles = stage is Stage.TRAIN
        self._steps = StepFloor()
        self._stepped = False
        self._seen = 0
        self._batch = -1
        self._first: int | None = None
        """What this pass began with."""
        self._highest = 0
        self._last: list[int] = []
        self.fell = False
        """Whether it was ever lower than before."""
        self.from_bytes: int | None = None
        self.to_bytes: int | None = None
        """What it rose from and to; None before there is anything to compare."""

    def observe(self, records: Series) -> None:
        """Some more batches that are alike."""
        first = records[0]
        if first.allocated_end_bytes is None:
            return
        start, end, steps = first.allocated_start_bytes, first.allocated_end_bytes, records[-1].optimizer_steps
        self.push(first.batch, start, end, steps=steps, times=len(records))

    def push(self, batch: int, start: int | None, end: int, *, steps: int, times: int = 1) -> None:
        """One value, or the same several times in a row.

        Args:
            batch: Its record number.
            start: Allocated bytes at the batch's beginning.
            end: And at its end.
            steps: Optimizer steps of the run by then.
            times: How often it came.
        """
        if self._settles:
            end = self._steps.push(end, steps, times)
            if steps and not self._stepped:
                self._stepped = True
                if self._seen:  # batches accumulated: the optimizer's states come only now
                    self._seen, self._first, self._last = 0, None, []
        if not self._settles and batch != self._batch:
            self._seen, self._first, self._last, self._highest = 0, None, [], 0
        self._batch = batch + times
        if self._first is None:
            self._first = end if start is None or steps else start
        elif self._settles and self._seen < SETTLING:
            self._first = end
        elif self._settles and self._seen < SETTLING + WINDOW:
            self._first = min(self._first, end)
        self._seen += times
        if self._settles and self._seen > SETTLING + WINDOW and end < OVER * self._first:
            return
        if end < (1 - FALL) * self._highest:
            self.fell = True
        self._highest = max(self._highest, end)
        self._last = [*self._last, *itertools.repeat(end, min(times, LAST))][-LAST:]
        to_bytes = min(self._last)
        if self._settles or to_bytes - self._first >= self.rise_bytes:
            self.from_bytes, self.to_bytes = self._first, to_bytes

    @property
    def highest_bytes(self) -> int:
        """The highest value so far of this pass."""
        return self._highest

    def pass_over(self, highest: int, *, fell: bool) -> None:
        """Batches of training in the middle, each with its step: they are neither what it rose from nor what to.

        Args:
            highest: The highest of them and of those before.
            fell: Whether one of them was lower than before.
        """
        self._highest = max(self._highest, highest)
        self.fell = self.fell or fell

    @property
    def rise_bytes(self) -> int:
        """By how much it rose; 0 where it did not."""
        if self.from_bytes is None or self.to_bytes is None:
            return 0
        return max(self.to_bytes - self.from_bytes, 0)


def floor_of(stage: Stage, rows: Iterable[tuple[int, int | None, int, int]]) -> KeptFloor:
    """The same from a recording: of each record its number, start, end, and the optimizer steps by then."""
    floor = KeptFloor(stage)
    for batch, start, end, steps in rows:
        floor.push(batch, start, end, steps=steps)
    return floor

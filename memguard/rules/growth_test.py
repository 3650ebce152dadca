"""The growth test: does the floor of a series rise steadily, and will it reach the limit?

Three scales of window minima, a run of strictly rising ones, and an extrapolation that never reaches further than three
times what was already seen. Trend tests (Mann-Kendall, Theil-Sen) alarm on every saw-tooth; the floor does not.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from memguard.records.kept_floor import StepFloor
from memguard.records.stats import BatchRecord, Run, Series, Stage

WINDOWS = (16, 64, 256)
"""Batches per window at the three scales, to begin with."""
RISES = 6
"""Strictly rising minima in a row that make a growth."""
WARM_UP = 32
"""First batches, which are ignored: caches, workspaces and lazy state appear there."""
QUICK_WINDOW, QUICK_BATCHES, QUICK_EVENNESS, QUICK_REACH = 4, 112, 0.5, 2.0
"""A growth that may fill the device before the windows above are full shows in smaller ones, in the first batches after
the warm-up. It must be evener for that, and reach the limit sooner."""
EVENNESS = 0.1
"""The smallest rise over the median rise, at least."""
REACH = 3.0
"""An extrapolation goes so many times as far as the growth was observed."""
KEPT = 0.5
"""Share of an epoch's growth that must outlive its end for the growth to count beyond it."""
LADDER = 3
"""Even rises between the floors of epochs that make a growth by themselves."""
FULL = 0.95
"""Share of the limit that counts as reached."""
MAX_WINDOW = 16_384


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A floor that rises."""

    rate: float
    """Bytes per batch."""
    observed: float
    """Bytes that it rose while it was watched."""
    batches: int
    """Batches in which it did."""
    floor: float
    """The newest floor."""
    since: int | None = None
    """The record with which it began, where records have numbers."""


@final
class _Scale:
    """Minima over windows of one length; a fall after a rise shows the period is longer, and doubles the window."""

    __slots__ = ("begun", "count", "minima", "minimum", "since", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.count = 0
        self.minimum = float("inf")
        self.minima: list[float] = []
        self.begun: int | None = None
        """The record with which this window began; the first one of all for the first, before the warm-up."""
        self.since: int | None = None
        """The same of the first of the windows that rise."""

    def push(self, minimum: float, values: int, batch: int | None) -> bool:
        """The minimum of so many more values from a record on, a part of a window; whether a window was completed."""
        if self.begun is None:
            self.begun = batch
        if minimum < self.minimum:
            self.minimum = minimum
        self.count += values
        if self.count < self.window:
            return False
        self._complete(self.minimum)
        self.count, self.minimum, self.begun = 0, float("inf"), None
        return True

    def _complete(self, minimum: float) -> None:
        minima = self.minima
        if minima and minimum <= minima[-1]:
            if len(minima) > 3 and self.window < MAX_WINDOW:
                self.window *= 2
            minima.clear()
        if not minima:
            self.since = self.begun
        minima.append(minimum)
        if len(minima) > 4 * RISES:
            del minima[1:3]  # the start of the growth stays, so that all of it counts as observed

    def growth(self, evenness: float = EVENNESS) -> Growth | None:
        """The growth at this scale, if the last rises are enough and even."""
        minima = self.minima
        if len(minima) <= RISES:
            return None
        last = minima[-RISES - 1 :]
        rises = [after - before for before, after in itertools.pairwise(last)]
        if min(rises) < evenness * statistics.median(rises):
            return None
        rate = (last[-1] - last[0]) / (RISES * self.window)
        return Growth(
            rate=rate,
            observed=minima[-1] - minima[0],
            batches=round((minima[-1] - minima[0]) / rate),
            floor=minima[-1],
            since=self.since,
        )


@final
class GrowthTest:
    """Watches the floor of one series, one value a batch.

    Args:
        windows: Lengths of the windows to begin with, multiples of the first.
        warm_up: First batches to ignore.
        quick: Whether a fast growth may show before the first windows do.
    """

    def __init__(self, windows: tuple[int, ...] = WINDOWS, warm_up: int = WARM_UP, *, quick: bool = False) -> None:
        self._scales = [_Scale(window) for window in windows]
        self._quick = _Scale(QUICK_WINDOW) if quick else None
        self._quick_left = QUICK_BATCHES
        self._left = warm_up
        self._head = windows[0]
        self._count = 0
        self._minimum = float("inf")
        self._begun: int | None = None
        self._epoch_count = 0
        self._epoch_floor = float("inf")
        self._newest = float("inf")
        self._epoch_begun: int | None = None
        self._floors: list[tuple[float, int | None]] = []
        """Of each epoch, with the record with which it began."""
        self.survives_epochs = False
        """Whether most of an epoch's growth was still there in the next one."""

    @property
    def to_go(self) -> int:
        """So many values, if they are the same, can be pushed at once."""
        if self._left > 0:
            return self._left
        until = self._head - self._epoch_count
        least = min(until, self._head - self._count) if until > 0 else self._head - self._count
        return least if self._quick is None else min(least, self._quick.window - self._quick.count, self._quick_left)

    def push(self, value: float, times: int = 1, batch: int | None = None) -> bool:
        """One more value.

        Args:
            value: The value.
            times: How often it came in a row; at most `to_go`.
            batch: The record number of the first of them.

        Returns:
            Whether a window was completed: only then can the judgement have changed.
        """
        if self._left > 0:
            if self._scales[0].begun is None:
                for scale in (*self._scales, *([self._quick] if self._quick is not None else [])):
                    scale.begun = batch
            self._left -= times
            return False
        if self._epoch_count < self._head:
            self._epoch_begun = batch if not self._epoch_count else self._epoch_begun
            self._epoch_count += times
            if value < self._epoch_floor:
                self._epoch_floor = value
            if self._epoch_count == self._head:
                self._epoch_began(self._epoch_floor)
        if value < self._minimum:
            self._minimum = value
        self._begun = batch if not self._count else self._begun
        self._count += times
        completed = self._quick is not None and self._push_quick(value, times, batch)
        if self._count < self._head:
            return completed
        minimum, self._minimum, self._count = self._minimum, float("inf"), 0
        for scale in self._scales:
            if scale.push(minimum, self._head, self._begun):
                completed = True
                if scale is self._scales[0]:
                    self._newest = scale.minima[-1]
        return completed

    def _push_quick(self, value: float, times: int, batch: int | None) -> bool:
        assert self._quick is not None
        completed = self._quick.push(value, times, batch)
        self._quick_left -= times
        if self._quick_left <= 0 or self._quick.window >= self._head:
            self._quick = None
        return completed

    def quick_growth(self) -> Growth | None:
        """The growth that shows in the first small windows, or None."""
        return self._quick.growth(QUICK_EVENNESS) if self._quick is not None else None

    def epoch_end(self) -> None:
        """The loop begins another pass."""
        self._epoch_count, self._epoch_floor = 0, float("inf")

    def _epoch_began(self, floor: float) -> None:
        if self._floors and self._newest < float("inf"):
            before, _ = self._floors[-1]
            within, kept = self._newest - before, floor - before
            self.survives_epochs = kept > 0 and kept >= KEPT * within
        self._floors.append((floor, self._epoch_begun))
        del self._floors[:-16]

    def growth(self) -> Growth | None:
        """The growth at the finest scale that shows one, or None."""
        return next((growth for scale in self._scales if (growth := scale.growth()) is not None), None)

    def ladder(self) -> tuple[float, int, int | None] | None:
        """Bytes by which each epoch's floor lies above the one before, the number of such even rises, since when."""
        rises: list[float] = []
        since = None
        for (before, begun), (after, _) in reversed(list(itertools.pairwise(self._floors))):
            if after <= before:
                break
            rises.append(after - before)
            since = begun
        if len(rises) < LADDER or min(rises[:LADDER]) < KEPT * statistics.median(rises[:LADDER]):
            return None
        return statistics.median(rises[:LADDER]), len(rises), since


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Where a growth leads."""

    growth: Growth
    batches_to_limit: int
    """Batches until the peak reaches the limit, at this rate."""


def outlook(
    ratchet: GrowthTest,
    *,
    peak: float,
    limit: float,
    batches_left: int | None,
    epoch_left: int | None,
    epoch_batches: int | None = None,
) -> Outlook | None:
    """Whether the growth will reach the limit within what may be extrapolated; None if not.

    Args:
        ratchet: The series.
        peak: The highest value lately; what it lies above the floor is needed in every batch.
        limit: What is there to take.
        batches_left: Batches to come in the run, if known.
        epoch_left: Batches to come in this epoch, if known.
        epoch_batches: Length of an epoch, if known.
    """
    for growth, reach in ((ratchet.growth(), REACH), (ratchet.quick_growth(), QUICK_REACH)):
        if growth is None or growth.rate <= 0:
            continue
        above = max(peak - growth.floor, 0.0)
        horizon = reach * growth.batches
        if batches_left is not None:
            horizon = min(horizon, batches_left)
        if epoch_left is not None and not ratchet.survives_epochs:
            horizon = min(horizon, epoch_left)
        if growth.floor + growth.rate * horizon + above > FULL * limit:
            return Outlook(growth=growth, batches_to_limit=max(int((limit - above - growth.floor) / growth.rate), 0))
    ladder = ratchet.ladder()
    if ladder is not None and epoch_batches:
        rise, epochs, since = ladder
        left = REACH * epochs
        if batches_left is not None:
            left = min(left, batches_left / epoch_batches)
        if peak + rise * left > FULL * limit:
            found = Growth(
                rate=rise / epoch_batches,
                observed=rise * epochs,
                batches=epochs * epoch_batches,
                floor=peak - rise,
                since=since,
            )
            return Outlook(growth=found, batches_to_limit=max(int((limit - peak) / found.rate), 0))
    return None


@final
class TrainingFloor:
    """Where a value leads that is read after each batch of training."""

    def __init__(self, ratchet: GrowthTest) -> None:
        self._ratchet = ratchet
        self._steps = StepFloor()
        self._peak = 0
        self._epoch: int | None = None

    def observe_alike(
        self, records: Series, run: Run, *, end: int, peak: int, limit: Callable[[], int | None]
    ) -> list[tuple[BatchRecord, Outlook]]:
        """Some more batches of training that are alike: the outlooks, each with the batch after which it shows.

        Args:
            records: The batches.
            run: The run.
            end: The value after each.
            peak: Its highest within each.
            limit: Tells what it may reach, None if nobody knows; asked after some batches only.
        """
        if records[0].epoch != self._epoch:
            if self._epoch is not None:
                self._ratchet.epoch_end()
            self._epoch = records[0].epoch
        if peak > self._peak:
            self._peak = peak
        end = self._steps.push(end, records[-1].optimizer_steps, len(records))
        shown, seen = [], 0
        while seen < len(records):
            times = min(self._ratchet.to_go, len(records) - seen)
            seen += times
            if self._ratchet.push(end, times, records[seen - times].batch):
                last = records[seen - 1]
                found = self._lead(last, run, limit)
                if found is not None:
                    shown.append((last, found))
        return shown

    def _lead(self, record: BatchRecord, run: Run, limit: Callable[[], int | None]) -> Outlook | None:
        """Where it leads, as of a batch that completed a window."""
        if (most := limit()) is None:
            return None
        length = run.batches_per_epoch.get(Stage.TRAIN)
        return outlook(
            self._ratchet,
            peak=self._peak,
            limit=most,
            batches_left=run.batches_left,
            epoch_left=length - record.index - 1 if length is not None and record.index is not None else None,
            epoch_batches=length,
        )

"""How often probes sample: their own time is measured, and they sample less until they keep to their share.

What a run may spend is a purse. It holds `ALLOWANCE_SECONDS` at the start, for the first batches, in which most
mistakes show; it fills by `SHARE` of the time that goes by (twice that while something is suspected), never above
the allowance. Everything memguard does in the loop is taken from it. Each of the first 64 batches of a stage is
sampled whatever it costs (a GAN that steps five critics for one generator shows eight graphs of it no earlier), then
1 batch in 16, and from the 512th on fewer and fewer: 16 while the number of batches doubles, so that what begins late
is sampled a few times before the run is a fifth longer. With an empty purse the interval is doubled at each look, up to
1 batch in 1024, and halved again when the purse has filled; no debt is larger than the allowance, so that one dear look
does not end all looking. So the cost tends to at most `SHARE` of any run. Three things are outside of it: the record of
each batch, which is never left out, the naming of a cause, which happens once and is bounded in time by itself, and a
few batches now and then that show at once that they may matter: after a floor that rose, and of evaluation with
gradients enabled, as a last test has them after many evaluations that had none.

The records of all batches show when that is. A floor that rises makes the probes sample, however late it begins and
however fast the loop is. So does one that jumps by a model's weights: a copy of them may have come, or a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from torch import nn

from memguard.clocks import perf_counter
from memguard.evidence.interface import Probe
from memguard.records.stats import BatchRecord, Stage
from memguard.torch_objects.module_parts import parameters_of
from memguard.torch_objects.storages import storages_of

FIRST_BATCHES = 64
"""First batches of each stage, which are sampled at any cost."""
INTERVAL, MAX_INTERVAL = 16, 1024
"""Afterwards one batch in so many."""
EACH_DOUBLING = 16
"""Batches that are sampled while a stage's number of them doubles, where the interval is not wider anyway."""
SHARE = 0.001
"""Own time over the run's time."""
CLOSE_SHARE = 0.002
"""The same while something is suspected, and every batch is sampled."""
GRAPHS, GRAPHS_AGAIN, LONGER = 8, 64, 4
"""Batches of evaluation with gradients enabled that are sampled, and after how many more again; each time later."""
ALLOWANCE_SECONDS = 0.06
"""Own time that a run may spend at once."""


@final
class SamplingBudget:
    """Decides which batches are sampled, by what sampling has cost so far.

    Attributes:
        interval: After the first batches of a stage, one batch in so many is sampled.
        widest: The largest interval so far.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.interval = self.widest = INTERVAL
        self._clock = clock
        self._purse = ALLOWANCE_SECONDS
        self._last: float | None = None
        self._batches: dict[Stage, int] = {}
        self._is_due = False
        self._graphs_until = self._graphs_from = 0
        self._graphs_again = GRAPHS_AGAIN

    def looks(
        self,
        stage: Stage,
        *,
        closely: bool = False,
        surely: bool = False,
        graphs: bool = False,
    ) -> bool:
        """Whether the batch that begins now is sampled; asked once for each.

        Args:
            stage: The batch's stage.
            closely: Whether something is suspected, so that every batch matters.
            surely: Whether it is sampled whatever that costs.
            graphs: Whether it is one of evaluation, and gradients are enabled.
        """
        number = self._batches.get(stage, 0)
        self._batches[stage] = number + 1
        if number < FIRST_BATCHES:
            self._is_due = False
            return True
        self._is_due = number % self._interval_at(number) == 0
        if surely or self._is_due or (graphs and self._shows(number)):
            return True
        if closely:
            self._fill(CLOSE_SHARE)
            return self._purse > 0
        return False

    def _shows(self, number: int) -> bool:
        """Whether this is one of the few batches of evaluation with gradients that are looked at."""
        if number >= self._graphs_from:
            self._graphs_until, self._graphs_from = number + GRAPHS, number + self._graphs_again
            self._graphs_again *= LONGER
        return number < self._graphs_until

    def number(self, stage: Stage) -> int:
        """That of the next batch of a stage, from 0."""
        return self._batches.get(stage, 0)

    def quiet_batches_ahead(self, stage: Stage) -> int:
        """How many batches of a stage come until the next one is due."""
        number = self._batches.get(stage, 0)
        return 0 if number < FIRST_BATCHES else -number % self._interval_at(number)

    def _interval_at(self, number: int) -> int:
        """One batch in so many is sampled there: a power of two, as the purse's own interval is."""
        grown = (1 << number.bit_length() - 1) // EACH_DOUBLING
        return max(self.interval, min(grown, MAX_INTERVAL))

    def pass_by(self, stage: Stage, batches: int) -> None:
        """So many batches went by without being asked about, none of them due."""
        self._batches[stage] = self._batches.get(stage, 0) + batches

    def spend(self, seconds: float) -> None:
        """Takes from the purse what memguard did since the last call."""
        self._purse = max(self._purse - seconds, -ALLOWANCE_SECONDS)

    def looked(self) -> None:
        """A sampled batch is over: samples will be rarer if the purse is empty, else as often as they were."""
        self._fill(SHARE)
        if not self._is_due:
            return  # one of the first, or a suspicion: that says nothing of the interval
        if self._purse < 0 and self.interval < MAX_INTERVAL:
            self.interval *= 2
            self.widest = max(self.widest, self.interval)
        elif self._purse > 0 and self.interval > INTERVAL:
            self.interval //= 2

    def account(self) -> str | None:
        """What was done to keep to the share, in words; None where nothing had to be done."""
        if self.widest == INTERVAL:
            return None
        now = self._interval_at(max(self._batches.values(), default=0))
        before = f" (1 in {self.widest} for a while)" if self.widest > now else ""
        return f"Every batch is recorded. To stay cheap, leak checks ran on 1 in {now} batches by the end{before}."

    def _fill(self, share: float) -> None:
        now = self._clock()
        if self._last is not None:
            self._purse = min(self._purse + share * max(now - self._last, 0.0), ALLOWANCE_SECONDS)
        self._last = now


# What the records show


WINDOW, RISES = 4, 5
"""Batches whose lowest end-of-batch value makes a floor, and floors in a row that lie above the one before."""
LONG_WINDOW, LONG_RISES = 64, 3
"""The same for what does not come with every few batches."""
LOOKS = 32
"""Batches that are sampled then, whatever that costs."""
FIRST_WAIT, WAITS_LONGER = 256, 4
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

    In a loop of short batches one in a thousand is sampled: a list that begins to fill in the third epoch would show
    there when it is long.
    """

    def _prepare(self) -> None:
        self._seen = self._without = 0
        self._floors = (Floor(WINDOW, RISES), Floor(LONG_WINDOW, LONG_RISES))
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
            self._again, self._wait = watch.batch + self._wait, self._wait * WAITS_LONGER
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
class Floor:
    """The lowest values of windows of one length.

    Args:
        window: Values of a window.
        least: Rises in a row that are enough to tell something.

    Attributes:
        floor: That of the last window.
        risen: By how much it lies above the first of those that rose.
    """

    __slots__ = ("_least", "_lowest", "_rises", "_seen", "_window", "floor", "risen")

    def __init__(self, window: int, least: int) -> None:
        self._window, self._least = window, least
        self._seen = self._rises = self.risen = 0
        self._lowest: int | None = None
        self.floor: int | None = None

    def push(self, end: int) -> bool:
        """One more value; whether it ends a window."""
        self._lowest = end if self._lowest is None or end < self._lowest else self._lowest
        self._seen += 1
        if self._seen % self._window:
            return False
        before, self.floor, self._lowest = self.floor, self._lowest, None
        rise = self.floor - before if before is not None else 0
        self._rises, self.risen = (self._rises + 1, self.risen + rise) if rise > 0 else (0, 0)
        return True

    @property
    def batches(self) -> int:
        """For how many it has been rising, where the rises are enough to tell something; else 0."""
        return self._rises * self._window if self._rises >= self._least else 0

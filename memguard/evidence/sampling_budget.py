"""How often probes sample: their own time is measured, and they sample less until they keep to their share.

What a run may spend is a purse. It holds `ALLOWANCE_SECONDS` at the start, for the first batches, in which most
mistakes show; it fills by `SHARE` of the time that goes by (twice that while something is suspected), never above
the allowance; and everything memguard does in the loop is taken from it. Each of the first 64 batches of a stage is
looked at whatever it costs (a GAN that steps five critics for one generator shows eight graphs of it no earlier), then
1 batch in 16. With an empty purse the interval is doubled at each look, up to 1 batch in 1024, and halved again when
the purse has filled; no debt is larger than the allowance, so that one dear look does not end all looking. So the cost
tends to at most `SHARE` of any run. Three things are outside of it: the record of each batch, which is never left out,
the naming of a cause, which happens once and is bounded in time by itself, and a few batches now and then that show at
once that they may matter: after a floor that rose (`memguard.evidence.rising_floor`), where a higher peak is due that
comes at equal intervals (`memguard.evidence.rising_floor`), and of evaluation with gradients enabled, as a last test
has them after many evaluations that had none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.clocks import perf_counter
from memguard.records.stats import Stage

FIRST_BATCHES = 64
"""Batches of each stage that are looked at, whatever it costs."""
INTERVAL, MAX_INTERVAL = 16, 1024
"""Afterwards one batch in so many."""
SHARE = 0.001
"""Own time over the run's time."""
CLOSE_SHARE = 0.002
"""The same while something is suspected, and every batch is looked at."""
GRAPHS, GRAPHS_AGAIN, LONGER = 8, 64, 4
"""Batches of evaluation with gradients enabled that are looked at, and after how many more again; each time later."""
ALLOWANCE_SECONDS = 0.2
"""Own time that a run may spend at once."""


@final
class SamplingBudget:
    """Decides which batches are looked at, by what looking has cost so far.

    Args:
        clock: Seconds that go by; tests bring their own.

    Attributes:
        interval: After the first batches of a stage, one batch in so many is looked at.
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
        expected: int | None = None,
    ) -> bool:
        """Whether the batch that begins now is looked at; asked once for each.

        Args:
            stage: The batch's stage.
            closely: Whether something is suspected, so that every batch matters.
            surely: Whether it is looked at whatever that costs.
            graphs: Whether it is one of evaluation, and gradients are enabled.
            expected: The number of the one that is to be looked at whatever that costs.
        """
        number = self._batches.get(stage, 0)
        self._batches[stage] = number + 1
        if number < FIRST_BATCHES:
            self._is_due = False
            return True
        self._is_due = number % self.interval == 0
        if surely or number == expected or self._is_due or (graphs and self._shows(number)):
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

    def quiet_batches_ahead(self, stage: Stage, expected: int | None = None) -> int:
        """How many batches of a stage come until the next one is due, or the one that is expected."""
        number = self._batches.get(stage, 0)
        ahead = 0 if number < FIRST_BATCHES else -number % self.interval
        return ahead if expected is None or expected < number else min(ahead, expected - number)

    def pass_by(self, stage: Stage, batches: int) -> None:
        """So many batches went by without being asked about, none of them due."""
        self._batches[stage] = self._batches.get(stage, 0) + batches

    def spend(self, seconds: float) -> None:
        """Takes from the purse what memguard did since the last call."""
        self._purse = max(self._purse - seconds, -ALLOWANCE_SECONDS)

    def looked(self) -> None:
        """A batch that was looked at is over: looks will be rarer if the purse is empty, else as often as they were."""
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
        before = f" (1 in {self.widest} for a while)" if self.widest > self.interval else ""
        return (
            "Every batch is recorded. To stay cheap, leak checks ran on "
            f"1 in {self.interval} batches by the end{before}."
        )

    def _fill(self, share: float) -> None:
        now = self._clock()
        if self._last is not None:
            self._purse = min(self._purse + share * max(now - self._last, 0.0), ALLOWANCE_SECONDS)
        self._last = now

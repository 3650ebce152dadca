"""Which batches are looked at, on a clock of the test's own."""

from __future__ import annotations

from torch import nn

from memguard.evidence.dispatcher import LATE_LOOKS, LATE_MODELS, ProbeDispatcher
from memguard.evidence.interface import ProbeContext
from memguard.evidence.sampling_budget import (
    ALLOWANCE_SECONDS,
    FIRST_BATCHES,
    GRAPHS,
    INTERVAL,
    MAX_INTERVAL,
    SHARE,
    SamplingBudget,
)
from memguard.records.stats import Stage


class Loop:
    """A run of equal batches, each look of which costs the same."""

    def __init__(self, batch_seconds: float, look_seconds: float) -> None:
        self.now = self.spent = 0.0
        self.batch_seconds, self.look_seconds = batch_seconds, look_seconds
        self.pace = SamplingBudget(clock=lambda: self.now)

    def run(self, batches: int, stage: Stage = Stage.TRAIN, *, closely: bool = False) -> list[int]:
        """Numbers of the batches that were looked at."""
        looked = []
        for batch in range(batches):
            looks = self.pace.looks(stage, closely=closely)
            self.now += self.batch_seconds
            if looks:
                looked.append(batch)
                self.spent += self.look_seconds
                self.pace.spend(self.look_seconds)
                self.pace.looked()
        return looked


def test_the_first_batches_of_each_stage_are_looked_at_then_one_in_sixteen() -> None:
    """Looks that cost little."""
    loop = Loop(0.03, 5e-5)
    for stage in (Stage.TRAIN, Stage.VALIDATION):
        assert loop.run(160, stage) == [*range(FIRST_BATCHES), *range(FIRST_BATCHES, 160, INTERVAL)]
    assert loop.pace.account() is None


def test_later_batches_are_looked_at_more_rarely() -> None:
    """As many looks while the number of batches doubles, however cheap they are, and never fewer than one in 1,024."""
    loop = Loop(0.03, 5e-5)
    looked = loop.run(40_000)
    assert [batch for batch in looked if 480 <= batch < 640] == [480, 496, 512, 544, 576, 608]
    assert sum(4096 <= batch < 8192 for batch in looked) == 16
    assert looked[-3:] == [37_888, 38_912, 39_936]
    assert loop.pace.account() is None


def test_the_cost_tends_to_the_share() -> None:
    """Looks that would take three hundredths of the run at the usual interval."""
    loop = Loop(1e-2, 5e-3)
    loop.run(40_000)
    first = FIRST_BATCHES * loop.look_seconds  # whatever they cost
    assert loop.spent <= first + 1.1 * (ALLOWANCE_SECONDS + SHARE * loop.now)
    assert loop.pace.widest > INTERVAL
    assert str(loop.pace.account()).startswith("Every batch is recorded. To stay cheap, leak checks ran on 1 in ")
    assert f"1 in {loop.pace.widest}" in str(loop.pace.account())


def test_the_first_batches_are_looked_at_whatever_it_costs() -> None:
    """Looks that empty the purse at once."""
    loop = Loop(1e-3, 1.0)
    looked = loop.run(2 * FIRST_BATCHES)
    assert looked[:FIRST_BATCHES] == list(range(FIRST_BATCHES))
    assert len(looked) <= FIRST_BATCHES + 4
    assert loop.run(FIRST_BATCHES, Stage.VALIDATION) == list(range(FIRST_BATCHES))


def test_it_never_ceases_to_look() -> None:
    """However dear looks are, one batch in a thousand has one."""
    loop = Loop(1e-4, 1.0)
    assert loop.pace.interval == INTERVAL
    loop.run(10 * MAX_INTERVAL)
    assert loop.pace.interval == MAX_INTERVAL
    assert loop.run(2 * MAX_INTERVAL)


def test_looks_that_became_cheap_come_often_again() -> None:
    """The purse fills while looks are rare."""
    loop = Loop(1e-2, 0.1)
    loop.run(4_000)
    assert loop.pace.interval > INTERVAL
    loop.look_seconds = 1e-6
    loop.run(60_000)
    assert loop.pace.interval == INTERVAL


def test_a_suspicion_has_every_batch_looked_at_while_it_can_be_paid() -> None:
    """Cheap looks closely: all; dear ones: until the allowance is spent."""
    assert Loop(0.03, 5e-5).run(1000, closely=True) == list(range(1000))
    loop = Loop(1e-3, 1e-3)
    assert FIRST_BATCHES < len(loop.run(5_000, closely=True)) < 500
    assert loop.spent < 2 * ALLOWANCE_SECONDS


def test_a_pause_gives_no_credit_beyond_the_allowance() -> None:
    """A night in a debugger pays for no more than the start of a run."""
    loop = Loop(1e-3, 1e-3)
    loop.run(2_000, closely=True)
    loop.now += 1e6
    spent = loop.spent
    loop.run(2_000, closely=True)
    assert loop.spent - spent < 2 * ALLOWANCE_SECONDS


def test_a_batch_that_is_to_be_looked_at_surely_is() -> None:
    """With an empty purse, too."""
    pace = SamplingBudget(clock=lambda: 0.0)
    for _ in range(FIRST_BATCHES + 1):
        pace.looks(Stage.TRAIN)
    pace.spend(10 * ALLOWANCE_SECONDS)
    assert [pace.looks(Stage.TRAIN, closely=True, surely=surely) for surely in (False, True)] == [False, True]


def test_evaluation_that_comes_with_gradients_is_looked_at_for_a_few_batches() -> None:
    """After many evaluations without; where all have them, ever more rarely."""
    pace = SamplingBudget(clock=lambda: 0.0)
    for _ in range(FIRST_BATCHES + 1):
        pace.looks(Stage.VALIDATION)
    pace.spend(10 * ALLOWANCE_SECONDS)
    assert not pace.looks(Stage.VALIDATION)
    looks = [pace.looks(Stage.VALIDATION, graphs=True) for _ in range(2000)]
    assert looks[:GRAPHS] == [True] * GRAPHS and not looks[GRAPHS]
    assert sum(looks) <= 4 * GRAPHS + 2000 / INTERVAL + 1


def test_a_model_that_joins_late_is_looked_at() -> None:
    """A few of them in a run: a loop that makes a model for each batch does not pay for all."""
    watch = ProbeContext()
    probes = ProbeDispatcher(watch, [])
    for batch in range(FIRST_BATCHES + 2):
        probes.batch_start(batch=batch, stage=Stage.TRAIN)
        probes.batch_end()
    models = [nn.Linear(1, 1) for _ in range(LATE_MODELS + 1)]
    asked = []
    for number, model in enumerate(models):
        watch.batch += 100
        probes.add_model(model)
        asked.append(watch.forced_until == watch.batch + LATE_LOOKS)
        probes.add_model(models[number])
    assert asked == [True] * LATE_MODELS + [False]

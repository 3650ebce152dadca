"""Graphs that are kept once in some batches: few of them tell, where nothing empties what keeps them."""

from collections import deque
from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors, statement_of


class Training:
    """A model, its optimizer, and one batch of training."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def batch(self, *, steps: bool = True) -> torch.Tensor:
        loss: torch.Tensor = self.model(torch.randn(8, 16)).square().mean()
        loss.backward()
        if steps:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss

    def told(self, count: int, keep: Callable[[int, torch.Tensor], None], *, every: int = 1) -> list[RetainedGraphs]:
        with Loop(self.model, kinds=[GraphsProbe]) as loop:
            for index in loop.batches(count):
                keep(index, self.batch(steps=index % every == every - 1))
        facts: list[RetainedGraphs] = loop.of(RetainedGraphs)
        return facts


@pytest.mark.parametrize(("period", "batch"), [(2, 9), (3, 9), (4, 10), (5, 12), (10, 22)])
def test_a_loss_that_is_kept_every_few_batches_is_told_at_the_third(period: int, batch: int) -> None:
    """``if step % 5 == 0: log.append(loss)``: each of three graphs was used up, and the weights were changed since."""
    log: list[torch.Tensor] = []

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % period == 0:
            log.append(loss)  # kept

    fact = Training().told(60, keep)[0]
    assert (fact.batch, fact.place.holder) == (batch, "log") and fact.graphs >= 3
    assert "# kept" in statement_of(fact)


def test_what_an_epoch_empties_takes_five() -> None:
    """A list that is begun anew by an outer loop may be short on purpose."""
    training = Training()
    with Loop(training.model, kinds=[GraphsProbe]) as loop:
        batches = loop.batches(60)
        for _ in range(2):
            log = []
            for index, _ in zip(range(30), batches, strict=False):
                loss = training.batch()
                if index % 3 == 0:
                    log.append(loss)
    assert loop.of(RetainedGraphs)[0].batch == 14


@sees_saved_tensors
@pytest.mark.parametrize(("period", "batch"), [(2, 9), (4, 11), (10, 23)])
def test_outputs_whose_weights_were_changed_are_told_at_the_third(period: int, batch: int) -> None:
    """A picture of some batches: a backward through any of them would fail, so that nobody waits for one."""
    training, pictures = Training(), list[torch.Tensor]()

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % period == 0:
            pictures.append(training.model(torch.ones(1, 16)))

    assert training.told(60, keep)[0].batch == batch


@pytest.mark.parametrize(("period", "batch"), [(2, 11), (4, 19)])
def test_outputs_that_a_backward_might_still_reach_take_five(period: int, batch: int) -> None:
    """Other weights were changed three times since, not those that these graphs need; there are more and more."""
    training, pictures = Training(), list[torch.Tensor]()
    other = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def keep() -> None:
        pictures.append(other(torch.ones(1, 16)))

    with Loop(training.model, other, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(60):
            training.batch()
            if index % period == 0:
                keep()
    assert loop.of(RetainedGraphs)[0].batch == batch


def test_losses_of_tasks_that_wait_for_one_backward_are_no_finding() -> None:
    """Each task takes steps of its own on a copy; the backward through all of them is seen just before they go."""
    training = Training()
    copy = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(copy.parameters(), lr=0.01)
    with Loop(training.model, copy, kinds=[GraphsProbe]) as loop:
        batches = iter(loop.batches(72))
        for _ in range(3):
            losses = list[torch.Tensor]()
            for _ in range(6):
                for _ in range(3):
                    next(batches)
                    copy(torch.ones(2, 16)).mean().backward()
                    optimizer.step()
                next(batches)
                losses.append(training.model(torch.ones(2, 16)).mean())
            torch.stack(losses).mean().backward()
            training.optimizer.step()
        next(batches, None)
    assert loop.of(RetainedGraphs) == []


def window() -> Callable[[int, torch.Tensor], None]:
    log: deque[torch.Tensor] = deque(maxlen=6)

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % 2 == 0:
            log.append(loss)

    return keep


def the_first_three() -> Callable[[int, torch.Tensor], None]:
    first: list[torch.Tensor] = []

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % 2 == 0 and index < 6:
            first.append(loss)

    return keep


def a_ring() -> Callable[[int, torch.Tensor], None]:
    ring: dict[int, torch.Tensor] = {}

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % 2 == 0:
            ring[index // 2 % 6] = loss

    return keep


def cleared_when_printed() -> Callable[[int, torch.Tensor], None]:
    shown: list[torch.Tensor] = []

    def keep(index: int, loss: torch.Tensor) -> None:
        if index % 2 == 0:
            shown.append(loss)
        if len(shown) == 7:
            shown.clear()

    return keep


@pytest.mark.parametrize("make", [window, the_first_three, a_ring, cleared_when_printed])
def test_a_few_graphs_that_are_meant_are_no_finding(make: Callable[[], Callable[[int, torch.Tensor], None]]) -> None:
    """Windows, examples and sums that are shown now and then hold a handful at even intervals as well."""
    assert Training().told(60, make()) == []


@pytest.mark.parametrize("grows", [True, False])
def test_what_comes_in_batches_that_nobody_looks_at_is_told_by_the_holders_length(grows: bool) -> None:
    """After the first batches few are looked at: that none of the kept ones is seen any more does not excuse them."""
    training, log = Training(), list[torch.Tensor]()
    other = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))  # not trained: its graphs stay usable

    def keep(output: torch.Tensor) -> None:
        log.append(output.mean())

    with Loop(training.model, other, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(60):
            training.batch()
            if index in range(4, 50, 10):
                keep(other(torch.ones(1, 16)))
            if index >= 45:
                loop.batch += 15
                if grows:
                    keep(other.forward(torch.ones(1, 16)))
    facts = loop.of(RetainedGraphs)
    assert [fact.place.holder for fact in facts] == (["log"] if grows else [])

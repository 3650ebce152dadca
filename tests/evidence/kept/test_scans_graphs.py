"""Containers that grow with graphs of which no forward's mark is a part."""

import linecache

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import RetainedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors, statement_of, train_on


@pytest.mark.parametrize(("every", "numbers"), [(1, 1), (1, 3), (5, 0), (5, 1)])
def test_graphs_are_told_in_a_log_that_gets_numbers_too_or_is_filled_every_few_batches(
    every: int, numbers: int
) -> None:
    """The newest element may be a number, and few of the others come between two rounds."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log: list[torch.Tensor | float] = []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for index in loop.batches(60):
            penalty = model.weight.pow(2).sum()
            train_on(optimizer, (model(torch.randn(2, 8)).sum() + penalty))
            if index % every == 0:
                log.append(penalty)  # kept
                log.extend([float(index)] * numbers)
    (fact,) = loop.of(RetainedGraphs)
    assert fact.place.holder == "log" and fact.graphs >= 8
    assert "kept" in statement_of(fact)


@pytest.mark.parametrize("window", [4, 20])
def test_a_mixed_log_with_an_end_is_silent(window: int) -> None:
    """It is cut to its last few elements."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    log: list[torch.Tensor | float] = []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(60):
            penalty = model.weight.pow(2).sum()
            train_on(optimizer, (model(torch.randn(2, 8)).sum() + penalty))
            log.extend((penalty, 1.0))
            del log[:-window]
    assert loop.facts == []


def test_losses_gathered_for_one_step_are_silent() -> None:
    """Thirty-two micro-batches between two steps."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gathered: list[torch.Tensor] = []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for index in loop.batches(64):
            gathered.append(model.weight.pow(2).sum() + model(torch.randn(2, 8)).mean())
            if index % 32 == 31:
                train_on(optimizer, torch.stack(gathered).sum())
                gathered.clear()
    assert loop.facts == []


class Runner:
    """Appends to one list in two methods; only one of them stores graphs."""

    def __init__(self) -> None:
        self.model = nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.history: list[torch.Tensor | float] = []

    def judge(self) -> None:
        self.history.append(self.model(torch.randn(2, 8)).mean().item())

    def step(self) -> None:
        train_on(self.optimizer, self.model(torch.randn(2, 8)).sum())
        self.history.append(self.model(torch.randn(2, 8)).mean())  # kept


def test_a_statement_that_stores_numbers_is_not_blamed_for_graphs() -> None:
    """The list that was told as keeping graphs is not told once more at the line that gives it numbers."""
    runner = Runner()
    with Loop(runner.model, kinds=[GraphsProbe, ScansProbe]) as loop:
        for _ in loop.batches(24):
            runner.step()
    (place,) = {fact.place for fact in loop.of(RetainedGraphs)}
    assert "kept" in linecache.getline(str(place.file), place.line or 0)


@sees_saved_tensors
def test_graphs_of_a_part_of_the_model_are_told_with_what_they_saved() -> None:
    """All that is in the list counts, from the first batch on; the input that all of the graphs share does not."""
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    norms: list[torch.Tensor] = []
    x = torch.randn(16, 8)
    with Loop(model, kinds=[GraphsProbe, ScansProbe]) as loop:
        for _ in loop.batches(24):
            train_on(optimizer, model(x).sum())
            norms.append(model[:2](x).norm())
    (fact,) = loop.of(RetainedGraphs)
    assert (fact.first_batch, fact.graphs) == (0, fact.last_batch + 1)
    hidden = 16 * 64 * 4
    assert fact.bytes == fact.graphs * (hidden + 4) and not fact.backward


KEPT: list[torch.Tensor] = []


def never_called(model: nn.Module) -> None:
    """As the function below, and before it."""
    KEPT.append(model(torch.randn(2, 8)).mean())


def keep(model: nn.Module) -> None:
    """The one that is called."""
    KEPT.append(model(torch.randn(2, 8)).mean())  # kept


def test_of_statements_that_are_alike_one_that_ran_is_told() -> None:
    """Both probes that find it come to the same line."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GraphsProbe, ScansProbe]) as loop:
        for _ in loop.batches(24):
            train_on(optimizer, model(torch.randn(2, 8)).sum())
            keep(model)
    (place,) = {fact.place for fact in loop.of(RetainedGraphs)}
    assert place.function == "keep"
    KEPT.clear()

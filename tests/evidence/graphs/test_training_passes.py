"""Evaluation that forgot both eval() and no_grad."""

import torch
from torch import nn

from memguard.evidence.graphs.unused_passes import TrainingPassesProbe
from memguard.records.facts import UnusedGraphs
from tests.evidence.loop import Loop, train_on


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    train_on(optimizer, model(torch.randn(8, 8)).sum())


def test_batches_that_are_left_out_are_silent() -> None:
    """Backwards use what the same lines build for other batches: the easy ones are left out, in a row by chance."""
    model, optimizer = make()
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for index in loop.batches(40):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 8)).sum()
            if index >= 20 and index % 10:
                continue
            loss.backward()
            optimizer.step()
    assert loop.of(UnusedGraphs) == []


def test_a_policy_asked_for_single_actions_is_silent() -> None:
    """Its outputs are small beside those that are trained on."""
    model, optimizer = make()
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for _ in loop.batches(4):
            train(model, optimizer)
            for _ in range(6):
                model(torch.randn(1, 8)).argmax().item()
    assert loop.of(UnusedGraphs) == []


def test_a_roll_out_that_carries_its_state_is_silent() -> None:
    """Each forward is given what the last one answered: no pass over data, though its answers are as large."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for _ in loop.batches(4):
            train(model, optimizer)
            state = torch.randn(8, 8)
            for _ in range(7):
                state = model(state)
            del state
            model(torch.randn(8, 8))
    assert loop.of(UnusedGraphs) == []

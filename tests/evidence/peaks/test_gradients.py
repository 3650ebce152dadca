from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.peaks.gradients import GradientsProbe
from memguard.records.facts import GradientsWithGraph, StaleGradients
from tests.evidence.loop import Loop, line_of, train_on

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")  # torch says it once, to whichever test comes first


def make() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(256, 256), torch.randn(4, 256)


def test_what_the_backward_of_another_model_adds_to_gradients_does_not_zero_them() -> None:
    """The critic's own zero_grad comes after its forward; the generator's loss reached its gradients before."""
    (critic, x), (generator, _) = make(), make()
    optimizer, others = torch.optim.SGD(critic.parameters()), torch.optim.SGD(generator.parameters())
    with Loop(critic, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(4):
            loss = critic(x).square().mean()
            train_on(optimizer, loss)
            critic(generator(x)).mean().backward()
            others.step()
    (fact,) = loop.of(StaleGradients)
    assert not fact.zeroed


def test_gradients_with_a_graph_that_wait_for_the_next_zero_grad_are_told() -> None:
    """The cycle stands from the step to the beginning of the next batch, and whatever runs in between."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward(create_graph=True)  # waits
            optimizer.step()
    model.zero_grad()
    (fact,) = loop.of(GradientsWithGraph)
    assert fact.place.line == line_of("waits")


def test_gradients_with_a_graph_that_are_taken_away_after_the_step_are_a_remark() -> None:
    """As torch advises: the block goes on to set them to None, and they live through the step alone."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(5):
            loss = model(x).square().mean()
            loss.backward(create_graph=True)
            optimizer.step()
            optimizer.zero_grad()
    assert [fact.cleared for fact in loop.of(GradientsWithGraph)] == [True]

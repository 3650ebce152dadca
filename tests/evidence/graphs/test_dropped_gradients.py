"""Gradients that a step leaves behind for another model, whose own step never uses them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.unused_gradients import DroppedGradientsProbe
from memguard.records.facts import UnusedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors, statement_of, train_on

ROWS = 512


class Gan:
    """A generator and a critic, each with an optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.generator = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 16))
        self.critic = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        self.of_generator = torch.optim.SGD(self.generator.parameters(), lr=0.01)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.01)

    def train_critic(self, fake: torch.Tensor) -> None:
        loss = self.critic(fake).mean() - self.critic(torch.randn(ROWS, 16)).mean()
        train_on(self.of_critic, loss)

    def train_generator(self) -> None:
        loss = -self.critic(self.generator(torch.randn(ROWS, 16))).mean()
        train_on(self.of_generator, loss)


def without_detach(gan: Gan) -> None:
    fake = gan.generator(torch.randn(ROWS, 16))  # wasted
    gan.train_critic(fake)
    gan.train_generator()


def twice_without_detach(gan: Gan) -> None:
    for _ in range(2):
        fake = gan.generator(torch.randn(ROWS, 16))  # wasted
        gan.train_critic(fake)
    gan.train_generator()


def with_detach(gan: Gan) -> None:
    gan.train_critic(gan.generator(torch.randn(ROWS, 16)).detach())
    gan.train_generator()


def one_backward_for_both(gan: Gan) -> None:
    """As an encoder and a decoder are trained, each with an optimizer of its own."""
    gan.of_critic.zero_grad()
    gan.of_generator.zero_grad()
    gan.critic(gan.generator(torch.randn(ROWS, 16))).mean().backward()
    gan.of_critic.step()
    gan.of_generator.step()


def gradients_that_add_up(gan: Gan) -> None:
    """The generator's step uses what the critic's left behind."""
    gan.train_critic(gan.generator(torch.randn(ROWS, 16)))
    (-gan.critic(gan.generator(torch.randn(ROWS, 16))).mean()).backward()
    gan.of_generator.step()
    gan.of_generator.zero_grad()


def told(update: Callable[[Gan], None]) -> list[UnusedGraphs]:
    gan = Gan()
    with Loop(gan.generator, gan.critic, kinds=[DroppedGradientsProbe]) as loop:
        for _ in loop.batches(12):
            update(gan)
    return loop.of(UnusedGraphs)


@sees_saved_tensors
@pytest.mark.parametrize("update", [without_detach, twice_without_detach])
def test_a_generator_whose_gradients_of_the_critics_step_are_dropped_is_told(update: Callable[[Gan], None]) -> None:
    """With the line that calls it there, and what its graph holds; the critic in the generator's step is needed."""
    (fact,) = told(update)
    assert fact.dropped and fact.frozen and fact.bytes is not None
    assert fact.bytes >= ROWS * 256 * 4
    assert "# wasted" in statement_of(fact)


@pytest.mark.parametrize("update", [with_detach, one_backward_for_both, gradients_that_add_up])
def test_gradients_that_a_step_uses_are_silent(update: Callable[[Gan], None]) -> None:
    """There are none, or the model's own step finds them where they were left."""
    assert told(update) == []

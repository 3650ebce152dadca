"""Derivatives taken inside a forward, in evaluation."""

from __future__ import annotations

import torch
from torch import nn

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.unused_passes import DerivativesProbe
from memguard.guards.differentiates import differentiates
from memguard.records.facts import UnusedGraphs
from memguard.records.stats import Stage
from tests.evidence.loop import Loop

KINDS = [EvaluationProbe, DerivativesProbe]
Answer = tuple[torch.Tensor, torch.Tensor]


class Field(nn.Module):
    """Forces by positions; its stem is upstream of the energy."""

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self.always = always
        self.net = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))

    def forward(self, pos: torch.Tensor) -> Answer:
        pos = pos.detach().requires_grad_()
        energy = self.net(pos).sum()
        (forces,) = torch.autograd.grad(energy, pos, create_graph=self.always or self.training)  # seen
        return energy, -forces


class Embedded(nn.Module):
    """Likewise behind an embedding, through which the derivative does not pass."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(4, 256), nn.Sequential(nn.Tanh(), nn.Linear(256, 256), nn.Tanh())

    def energy(self, pos: torch.Tensor) -> torch.Tensor:
        kinds = self.embed(torch.zeros(len(pos), dtype=torch.long))
        result: torch.Tensor = self.out(kinds * pos.square().sum(1, keepdim=True)).sum()
        return result

    def forward(self, pos: torch.Tensor) -> Answer:
        pos = pos.detach().requires_grad_()
        energy = self.energy(pos)
        forces = -torch.autograd.grad(energy, pos, create_graph=self.training)[0]
        return energy, forces


class Laplacian(nn.Module):
    """A second derivative, which needs the graph of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))

    def forward(self, x: torch.Tensor) -> Answer:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(self.net(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
        return first, second


def told(model: nn.Module, *, used: bool = False, size: int = 1024) -> list[UnusedGraphs]:
    """What is told of a few batches of evaluation, whose forces a backward runs through or not."""
    with Loop(model.eval(), kinds=KINDS, differentiates=differentiates) as loop:
        for _ in loop.batches(6, Stage.VALIDATION):
            _, forces = model(torch.randn(size, 32))
            if used:
                forces.square().sum().backward()
    return loop.of(UnusedGraphs)


def test_forces_without_a_graph_are_none() -> None:
    """Whether the derivative passes the model's stem or not: it needs the graph that it uses up."""
    assert told(Field(always=False)) == [] and told(Embedded()) == []


def test_what_is_differentiated_again_or_small_is_none() -> None:
    """Training in eval mode, a Hessian, a second derivative in the forward; a graph of a few kilobytes."""
    assert told(Field(always=True), used=True) == []
    assert told(Laplacian()) == []
    assert told(Field(always=True), size=2) == []

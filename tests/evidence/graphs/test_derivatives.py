"""Derivatives taken inside a forward, in evaluation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.unused_passes import DerivativesProbe
from memguard.guards.differentiates import differentiates
from memguard.records.facts import UnusedGraphs
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, sees_saved_tensors

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


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def told(model: nn.Module, *, used: bool = False, size: int = 1024) -> list[UnusedGraphs]:
    """What is told of a few batches of evaluation, whose forces a backward runs through or not."""
    with Loop(model.eval(), kinds=KINDS, differentiates=differentiates) as loop:
        for _ in loop.batches(6, Stage.VALIDATION):
            _, forces = model(torch.randn(size, 32))
            if used:
                forces.square().sum().backward()
    return loop.of(UnusedGraphs)


@sees_saved_tensors
def test_forces_with_a_graph_that_nobody_differentiates_are_told_where_they_are_taken() -> None:
    """By the fourth batch; no_grad is no remedy, and is not told besides."""
    (fact,) = told(Field(always=True))
    assert fact.derivative and fact.batch <= 3 and fact.bytes is not None and fact.bytes > 2**20
    assert (fact.place.line, fact.place.function) == (line_of("seen"), fact.place.function)


def test_forces_without_a_graph_are_none() -> None:
    """Whether the derivative passes the model's stem or not: it needs the graph that it uses up."""
    assert told(Field(always=False)) == [] and told(Embedded()) == []


def test_what_is_differentiated_again_or_small_is_none() -> None:
    """Training in eval mode, a Hessian, a second derivative in the forward; a graph of a few kilobytes."""
    assert told(Field(always=True), used=True) == []
    assert told(Laplacian()) == []
    assert told(Field(always=True), size=2) == []


def energies() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))


def forces_of(model: nn.Module, x: torch.Tensor, *, graph: bool) -> torch.Tensor:
    forces = torch.autograd.grad(model(x).sum(), x, create_graph=graph)[0]  # outside
    return forces


def told_outside(
    act: Callable[[torch.Tensor], None], *, graph: bool = True, trained: bool = True
) -> list[UnusedGraphs]:
    """What is told of evaluation after some training, where forces are taken outside of the model."""
    model = energies()
    with Loop(model, kinds=KINDS, differentiates=differentiates) as loop:
        for _ in loop.batches(3 * trained):
            forces_of(model, torch.randn(1024, 32, requires_grad=True), graph=True).square().sum().backward()
        model.eval()
        for _ in loop.batches(6, Stage.VALIDATION):
            act(forces_of(model, torch.randn(1024, 32, requires_grad=True), graph=graph))
    return loop.of(UnusedGraphs)


def read(forces: torch.Tensor) -> None:
    forces.abs().max().item()


@sees_saved_tensors
def test_a_derivative_outside_of_the_model_is_told_where_it_is_taken() -> None:
    """Its graph died unused, whatever backwards use of it in training."""
    for trained in (True, False):
        (fact,) = told_outside(read, trained=trained)
        assert (fact.place.line, fact.training) == (line_of("outside"), False)
    (fact,) = told_outside(read)
    assert fact.derivative and (fact.place.line, fact.place.holder) == (line_of("outside"), "forces")
    assert fact.module == "Sequential" and fact.stage is Stage.VALIDATION and fact.bytes is not None


def test_a_derivative_outside_that_has_no_graph_or_is_used_is_none() -> None:
    """Whether training uses such or not."""
    assert told_outside(read, graph=False) == []
    assert told_outside(lambda forces: forces.square().sum().backward()) == []  # type: ignore[no-untyped-call]
    assert told_outside(lambda forces: forces.square().sum().backward(), trained=False) == []  # type: ignore[no-untyped-call]


def told_in_training(step: Callable[[nn.Module, int], object], batches: int = 12) -> list[UnusedGraphs]:
    """What is told of a training whose step takes derivatives."""
    model = energies()
    with Loop(model, kinds=KINDS) as loop:
        for index in loop.batches(batches):
            step(model, index)
    return loop.of(UnusedGraphs)


def logged_penalty(model: nn.Module, index: int, *, used: bool = False) -> None:
    x = torch.randn(1024, 32, requires_grad=True)
    slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]  # logged
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = model(x.detach()).square().mean()
    (loss + penalty if used else loss).backward()


def adapted(model: nn.Module, index: int, *, second_order: bool = False) -> None:
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    fast = weights
    for _ in range(3):
        inner = torch.func.functional_call(model, fast, (torch.randn(512, 32),)).square().mean()
        slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)  # inner step
        fast = {name: weight - 0.1 * slope for (name, weight), slope in zip(fast.items(), slopes, strict=True)}
    if not second_order:
        fast = {name: weight.detach().requires_grad_() for name, weight in fast.items()}
    torch.func.functional_call(model, fast, (torch.randn(512, 32),)).square().mean().backward()


@sees_saved_tensors
def test_derivatives_in_training_that_no_backward_reaches_are_told_where_they_are_taken() -> None:
    """A penalty that is only logged, inner steps of which the values alone are used."""
    (fact,) = told_in_training(logged_penalty)
    assert (fact.place.line, fact.place.holder, fact.training) == (line_of("logged"), "slope", True)
    (fact,) = told_in_training(adapted)
    assert (fact.place.line, fact.place.holder) == (line_of("inner step"), "slopes")


def test_derivatives_in_training_that_are_used_are_none() -> None:
    """In each batch, or in one of four: a lazy penalty; second-order inner steps."""
    assert told_in_training(lambda model, index: logged_penalty(model, index, used=True)) == []
    assert told_in_training(lambda model, index: logged_penalty(model, index, used=index % 4 == 0)) == []
    assert told_in_training(lambda model, index: adapted(model, index, second_order=True)) == []

"""An input is optimized through a model that nobody trains: patches, style transfer, fits frame by frame."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import GradientsWithGraph, RetainedGraphs, SavedAfterBackward
from tests.evidence.graphs.test_old_graphs import make
from tests.evidence.loop import Loop, line_of, sees_saved_tensors


def frozen() -> nn.Module:
    return make()[0].eval().requires_grad_(False)


def test_a_frozen_judge_whose_graph_the_last_loss_frees_is_silent() -> None:
    """A perceptual loss and another on one generator: the first backward keeps the graph for the second."""
    (generator, optimizer, x), judge = make(), nn.Sequential(nn.Linear(4, 16), frozen()).eval()
    with Loop(generator, judge, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(8):
            fake = generator(x)
            perceptual = judge(fake).square().mean()
            torch.autograd.grad(perceptual, [next(generator.parameters())], retain_graph=True)
            perceptual.backward(retain_graph=True)
            fake.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert loop.of(SavedAfterBackward) == []


def newton(model: nn.Module, target: torch.Tensor, *, clear: bool, steps: int = 3) -> torch.Tensor:
    pose = torch.zeros(4, 16, requires_grad=True)
    for _ in range(steps):
        pose.grad = None
        (model(pose) - target).square().mean().backward(create_graph=True)  # tied
        assert pose.grad is not None
        v = torch.randn_like(pose)
        (curved,) = torch.autograd.grad((pose.grad * v).sum(), pose, retain_graph=True)
        with torch.no_grad():
            pose -= pose.grad / (curved * v).abs().clamp_min(1e-2)
    if clear:
        pose.grad = None
    return pose.detach().clone()


@sees_saved_tensors
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("clear", [True, False])
def test_a_tensor_thrown_away_with_its_gradient_is_told_though_nothing_steps(clear: bool) -> None:
    """A second-order fit without an optimizer: each frame's last graph stays, unless the gradient is taken away."""
    model = frozen().train()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(14):
            newton(model, torch.randn(4, 4), clear=clear)
    facts = loop.of(GradientsWithGraph)
    assert loop.of(RetainedGraphs) == []
    assert bool(facts) is not clear
    assert all(fact.place.line == line_of("tied") and fact.graphs >= 8 for fact in facts)

"""An input is optimized through a model that nobody trains: patches, style transfer, fits frame by frame."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import GradientsWithGraph, RetainedGraphs, SavedAfterBackward
from tests.evidence.graphs.test_old_graphs import make
from tests.evidence.loop import Loop, sees_saved_tensors


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def frozen() -> nn.Module:
    return make()[0].eval().requires_grad_(False)


@sees_saved_tensors
@pytest.mark.parametrize("keep", [True, False])
def test_a_graph_that_stays_after_the_backward_of_a_frozen_model_is_told(keep: bool) -> None:
    """A patch that is optimized through a detector in eval mode, with retain_graph=True."""
    model, patch = frozen(), torch.zeros(8, 16, requires_grad=True)
    optimizer = torch.optim.Adam([patch])
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(8):
            loss = model(patch * 2).sigmoid().mean()
            loss.backward(retain_graph=keep)  # kept
            optimizer.step()
            optimizer.zero_grad()
    facts = loop.of(SavedAfterBackward)
    assert bool(facts) is keep
    assert all(fact.place.line == line_of("kept") for fact in facts)


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


def test_looks_at_a_frozen_model_between_steps_are_silent() -> None:
    """Saliency with retain_graph=True, where the graph is gone when the model is called again, or no step was made."""
    model, (net, optimizer, x) = frozen(), make()
    with Loop(model, net, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(8):
            for _ in range(2):
                image = x.clone().requires_grad_()
                score = model(image).sum()
                score.backward(retain_graph=True)
            del score, image
            net(x).mean().backward()
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


@pytest.mark.filterwarnings("ignore:Using backward")
def test_graphs_that_somebody_keeps_for_later_are_not_told_as_tied() -> None:
    """Without a step so far they may be wanted: a list of gradients for one backward at the end."""
    model, kept = frozen().train(), []
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(14):
            pose = torch.zeros(4, 16, requires_grad=True)
            model(pose).square().mean().backward(create_graph=True)
            kept.append(pose.grad)
            pose.grad = None
    assert loop.of(GradientsWithGraph) == []
    assert len(kept) == 14


def test_a_derivative_by_autograd_grad_is_silent() -> None:
    """An unrolled fit keeps the graphs of its steps, and gives them back."""
    model = frozen().train()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        pose = torch.zeros(4, 16, requires_grad=True)
        for _ in loop.batches(14):
            (slope,) = torch.autograd.grad(model(pose).square().mean(), pose, create_graph=True)
            pose = pose - 0.1 * slope
    assert loop.of(GradientsWithGraph) == []

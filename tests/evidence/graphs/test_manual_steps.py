"""Steps made by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.graph_marks import ManualStepsProbe
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs
from tests.evidence.loop import Loop, train_on


def none(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    model.zero_grad()


def zeroed(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data -= 0.1 * parameter.grad
        parameter.grad.zero_()


def in_place(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


@pytest.mark.parametrize("update", [none, zeroed, in_place])
def test_updates_by_hand_count_as_steps(update: Callable[[nn.Module], None]) -> None:
    """Gradients set to None, zeroed, or weights changed in place: kept losses are found as with an optimizer."""
    model, kept = nn.Linear(4, 2), []
    with Loop(model, kinds=[ManualStepsProbe, GraphsProbe]) as loop:
        for _ in loop.batches(14):
            loss = model(torch.randn(3, 4)).sum()
            loss.backward()
            update(model)
            kept.append(loss)
    assert loop.watch.optimizer_steps == 13
    assert [fact.place.holder for fact in loop.of(RetainedGraphs)] == ["kept"]


def test_gradients_that_only_accumulate_are_no_steps() -> None:
    """Nothing has served yet."""
    model, kept = nn.Linear(4, 2), []
    with Loop(model, kinds=[ManualStepsProbe, GraphsProbe]) as loop:
        for _ in loop.batches(14):
            kept.append(model(torch.randn(3, 4)).sum())
            kept[-1].backward()
    assert loop.watch.optimizer_steps == 0 and loop.of(RetainedGraphs) == []


def test_gradients_asked_for_by_autograd_grad_are_no_steps() -> None:
    """An inner loop of MAML holds its graphs for the outer step."""
    model, kept = nn.Linear(4, 2), []
    with Loop(model, kinds=[ManualStepsProbe, GraphsProbe]) as loop:
        for _ in loop.batches(14):
            loss = model(torch.randn(3, 4)).sum()
            torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
            kept.append(loss)
    assert loop.watch.optimizer_steps == 0 and loop.of(RetainedGraphs) == []


def test_an_optimizer_ends_it_and_nothing_of_it_stays() -> None:
    """Its steps are not counted twice; the hook is gone."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Loop(model, kinds=[ManualStepsProbe]) as loop:
        for _ in loop.batches(6):
            train_on(optimizer, model(torch.randn(3, 4)).sum())
        assert loop.watch.optimizer_steps == 6
        assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_a_parameter_that_is_another_tensor_for_one_call_is_not_followed() -> None:
    """Within functional_call the adapted weights have a graph; the model's own are followed after it."""
    model = nn.Linear(4, 2)
    with Loop(model, kinds=[ManualStepsProbe]) as loop:
        for _ in loop.batches(6):
            adapted = {name: weight * 2 for name, weight in model.named_parameters()}
            torch.func.functional_call(model, adapted, (torch.randn(3, 4),)).sum().backward()
            model(torch.randn(3, 4)).sum().backward()
            model.zero_grad()
    assert loop.watch.optimizer_steps > 0

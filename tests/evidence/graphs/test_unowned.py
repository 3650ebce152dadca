"""Gradients that nobody takes."""

import copy

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.frozen_parts import InnerFrozenProbe
from memguard.evidence.graphs.unused_gradients import UntakenGradientsProbe
from memguard.records.facts import UntakenGradients, UnusedGraphs
from tests.evidence.loop import Loop, statement_of, train_on


def run(
    *, teacher_optimizer: bool = False, averaged: bool = False, inputs_want_gradients: bool = False, keeps: bool = False
) -> Loop:
    student = nn.Linear(6, 6)
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    other = torch.optim.SGD(teacher.parameters(), lr=0.01) if teacher_optimizer else None
    losses: list[torch.Tensor] = []
    with Loop(student, teacher, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            x = torch.randn(4, 6, requires_grad=inputs_want_gradients)
            target = teacher(x)  # asked
            loss = (student(x) - target).pow(2).mean()
            train_on(optimizer, loss)
            if keeps:
                losses.append(loss)
            if averaged:
                with torch.no_grad():
                    for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                        old.lerp_(new, 0.1)
    del other, losses
    return loop


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="-"),
        pytest.param({"keeps": True}, id="a list keeps all graphs"),
        pytest.param({"averaged": True}, id="weights are averaged into it"),
    ],
)
def test_a_teacher_that_gets_gradients_is_told_with_the_line(more: dict[str, bool]) -> None:
    """No optimizer holds its weights, nobody clears its gradients, and nothing in front of it wants one."""
    (fact,) = run(**more).of(UnusedGraphs)
    assert fact.frozen and fact.gradients_bytes == 4 * (36 + 6)
    assert "asked" in statement_of(fact)


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param({"teacher_optimizer": True}, id="its optimizer has not stepped yet"),
        pytest.param({"inputs_want_gradients": True}, id="its graph leads to inputs that want gradients"),
    ],
)
def test_a_model_whose_gradients_may_serve_is_silent(reason: dict[str, bool]) -> None:
    """One reason to need the graph is enough."""
    assert run(**reason).of(UnusedGraphs) == []


def test_gradients_that_somebody_takes_away_are_silent() -> None:
    """Weights stepped by hand through .data show no new version; their gradients are cleared each time."""
    student, other = nn.Linear(6, 6), nn.Linear(6, 6)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    with Loop(student, other, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            x = torch.randn(4, 6)
            loss = (student(x) - other(x)).pow(2).mean()
            train_on(optimizer, loss)
            for parameter in other.parameters():
                parameter.data -= 0.01 * parameter.grad
            if loop.batch % 2:
                other.zero_grad()
    assert loop.of(UnusedGraphs) == []


def test_a_reference_model_asked_through_a_function_that_the_policy_shares_is_told_where_that_is_called() -> None:
    """The line in the function serves both."""
    policy, reference = nn.Linear(6, 6), nn.Linear(6, 6)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)

    def score(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(x).log_softmax(-1)
        return out

    with Loop(policy, reference, kinds=[EvaluationProbe, InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            x = torch.randn(4, 6)
            ratio = score(policy, x)
            ratio = ratio - score(reference, x)  # the reference
            train_on(optimizer, ratio.pow(2).mean())
    (fact,) = loop.of(UnusedGraphs)
    assert "the reference" in statement_of(fact)
    assert fact.place.holder == "reference"


class Adapted(nn.Module):
    """A backbone, and an adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.adapter = nn.Linear(600, 600), nn.Linear(600, 600)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.backbone(x) + self.adapter(x)
        return out


def train_adapter(
    *, frozen: bool = False, cleared: bool = False, by_hand: bool = False, later: bool = False, whole: bool = False
) -> Loop:
    model, loss_net = Adapted(), Adapted()
    model.backbone.requires_grad_(not frozen)
    if not whole:
        loss_net.requires_grad_(False)
    optimizer = torch.optim.SGD((model if whole else model.adapter).parameters(), lr=0.01)
    waiting = torch.optim.SGD(model.backbone.parameters(), lr=0.01) if later else None
    with Loop(model, loss_net, kinds=[UntakenGradientsProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, loss_net(model(torch.randn(4, 600))).square().mean())
            if by_hand:
                with torch.no_grad():
                    for parameter in model.backbone.parameters():
                        parameter -= 0.01 * parameter.grad
                        parameter.grad.zero_()
            if cleared:
                model.zero_grad()
    del waiting
    return loop


def test_a_backbone_that_was_not_frozen_under_its_adapter_is_told_with_its_gradients() -> None:
    """The optimizer of the adapter clears its own gradients alone; those of the backbone add up."""
    (fact,) = train_adapter().of(UntakenGradients)
    assert (fact.module, fact.parameters, fact.whole) == ("Adapted", 2, False)
    assert fact.bytes == 4 * (600 * 600 + 600)


def test_a_network_inside_a_loss_that_was_not_frozen_is_told_as_a_whole() -> None:
    """Its graph is needed, for the trained model lies before it; its own gradients are not."""
    (fact,) = train_adapter(whole=True).of(UntakenGradients)
    assert (fact.parameters, fact.whole) == (4, True)


@pytest.mark.parametrize("reason", ["frozen", "cleared", "by_hand", "later"])
def test_a_backbone_whose_gradients_may_serve_is_silent(reason: str) -> None:
    """Frozen; cleared with the rest; changed by hand; held by an optimizer that is yet to step."""
    assert train_adapter(**{reason: True}).of(UntakenGradients) == []


def test_objects_are_not_searched_for_optimizers_where_the_known_ones_hold_all_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To go over all objects takes as long as hundreds of short batches."""
    searched: list[type] = []

    def note(*kinds: type) -> list[object]:
        searched.extend(kinds)
        return []

    monkeypatch.setattr("memguard.heap.parameters.instances_of", note)
    train_adapter(frozen=True)
    assert not searched
    train_adapter()
    assert searched

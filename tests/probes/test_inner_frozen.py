"""Teachers inside the model."""

import copy
import linecache

import pytest
import torch
from torch import nn

from memguard.facts import UnusedGraphs
from memguard.probes import inner_frozen
from memguard.probes.inner_frozen import MAX_PARTS, InnerFrozenProbe
from tests.probes.loop import Loop


class Pair(nn.Module):
    """A student, and a teacher whose answer is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(6, 6)
        self.teacher = copy.deepcopy(self.student)
        self.no_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(not self.no_grad):
            target = self.teacher(x)  # asked
        return (self.student(x) - target.detach()).pow(2).mean()


def run(pair: Pair, *, late: bool = False) -> list[UnusedGraphs]:
    optimizer = torch.optim.SGD(pair.student.parameters(), lr=0.1)
    other = torch.optim.SGD(pair.teacher.parameters(), lr=0.1) if late else None
    with Loop(pair, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            optimizer.zero_grad()
            pair(torch.randn(4, 6)).backward()
            optimizer.step()
    assert not any(module._forward_hooks for module in pair.modules())
    del other
    return loop.of(UnusedGraphs)


def test_an_inner_teacher_with_gradients_is_told_with_the_line() -> None:
    """No optimizer holds it, no backward enters its graph."""
    (fact,) = run(Pair())
    assert fact.frozen and fact.module == "Linear"
    assert "asked" in linecache.getline(str(fact.place.file), fact.place.line or 0)


def test_an_inner_teacher_without_a_graph_is_silent() -> None:
    """Under no_grad, or frozen."""
    pair = Pair()
    pair.no_grad = True
    assert run(pair) == []
    pair = Pair()
    pair.teacher.requires_grad_(False)
    assert run(pair) == []


def test_a_part_whose_optimizer_steps_later_is_silent() -> None:
    """A generator waits for several steps of its critic."""
    assert run(Pair(), late=True) == []


def test_few_parts_are_hooked_and_none_of_a_model_with_too_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends with the last part that it hooks; a huge model is not gone through at all."""

    class Teachers(Pair):
        def __init__(self) -> None:
            super().__init__()
            for number in range(3 * MAX_PARTS):
                self.add_module(f"teacher_{number}", copy.deepcopy(self.student))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            teachers = list(self.children())[2:]
            return super().forward(x) + sum(teacher(x).detach().sum() for teacher in teachers)

    assert len(run(Teachers())) == MAX_PARTS
    monkeypatch.setattr(inner_frozen, "MOST_OWNED", 3)
    assert run(Pair()) == []

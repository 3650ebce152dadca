from __future__ import annotations

import functools
import gc
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.cycles.collected_graphs import CyclesProbe, look_at_garbage
from memguard.evidence.graphs.function_contexts import ContextsProbe
from memguard.records.facts import FreedByCollector, FunctionContextHolds
from tests.evidence.loop import Loop, line_of, train_on


class Keeper:
    """Holds itself and a loss."""

    def __init__(self, loss: torch.Tensor) -> None:
        self.loss = loss
        self.me = self  # circle


class ClosesOverInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.pullback = lambda grad: 2 * x * grad  # closed over input
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.pullback(grad)


class IsGivenFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.scale = functools.partial(torch.mul, SCALE)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.scale(grad)


SCALE = torch.full((4, 8), 2.0)


class WithFunction(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function.apply(self.linear(x)).sum()


def test_an_object_in_a_circle_is_named() -> None:
    """A loss held by an object that refers to itself waits for the collector; the attribute is named."""
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[CyclesProbe]) as loop:
        for _ in loop.batches(10):
            loss = model(x).sum()
            Keeper(loss)
            train_on(optimizer, loss)
    (fact,) = loop.of(FreedByCollector)
    assert fact.graphs >= 3
    assert (fact.place.holder, fact.place.line) == ("Keeper.me", line_of("circle"))


def _fail_beside() -> None:
    """Leaves an error that holds its own frame, as an import in the midst of a program may."""
    try:
        raise LookupError
    except LookupError as error:
        kept = error
    assert kept


def test_an_error_that_leads_to_no_tensor_is_not_the_circle(without_collector: None) -> None:
    """Its frame is garbage too, but nothing would be freed without it."""
    _fail_beside()
    Keeper(torch.rand(64))
    found = look_at_garbage()
    assert found is not None and "Keeper.me" in (found.text or "")


@pytest.mark.parametrize(("function", "told"), [(ClosesOverInput, ["pullback"]), (IsGivenFunction, [])])
def test_what_a_function_on_ctx_closes_over_counts_if_it_is_an_input(function: Any, told: list[str]) -> None:
    """A function that binds only what another has, like a constant, is none of the context's."""
    model, x = WithFunction(function), torch.randn(4, 8)
    with Loop(model, kinds=[ContextsProbe]) as loop:
        for _ in loop.batches(4):
            model(x).backward()
    assert [name for fact in loop.of(FunctionContextHolds) for name in fact.attributes] == told


def test_ordinary_loops_are_silent_and_the_collector_is_left_as_it_was() -> None:
    """Graphs freed by reference counting are none of the collector's, and no callback stays behind."""
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    callbacks = len(gc.callbacks)
    with Loop(model, kinds=[CyclesProbe, ContextsProbe]) as loop:
        for _ in loop.batches(20):
            loss = model(x).sum()
            train_on(optimizer, loss)
            gc.collect()
    assert loop.facts == []
    assert len(gc.callbacks) == callbacks and gc.garbage == [] and gc.get_debug() == 0


def test_garbage_of_others_is_theirs() -> None:
    """Where somebody debugs the collector, no look is taken."""
    gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
    try:
        assert look_at_garbage() is None
    finally:
        gc.set_debug(0)

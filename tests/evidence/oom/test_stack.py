"""Where the program stood: the line that asked, and the line of the loop that called the model."""

from __future__ import annotations

import sys

import torch
from torch import nn

from memguard.evidence.oom.stack import Stack, stack_of
from memguard.records.facts import NOWHERE


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("asked here")


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def evaluate(model: nn.Module) -> torch.Tensor:
    return model(torch.ones(1))


def seen(act: object) -> Stack:
    """The stack of what fails."""
    try:
        act()  # type: ignore[operator]
    except torch.OutOfMemoryError as error:
        return stack_of(error)
    raise AssertionError("it did not fail")


def test_the_caller_of_the_outermost_model_is_told_beside_the_line_that_asked() -> None:
    """A forward within a forward asked; what is to be changed is where the loop calls the outer one."""
    stack = seen(lambda: evaluate(Outer()))
    asked = Inner.forward.__code__
    assert stack.site.function == getattr(asked, "co_qualname", "forward")  # Python 3.10 knows no qualified names
    assert stack.site.line == asked.co_firstlineno + 1
    assert stack.call_site.function == "evaluate"
    assert stack.call_site.line == evaluate.__code__.co_firstlineno + 1
    assert type(stack.model) is Outer
    stack.frames.clear()


def test_outside_of_models_there_is_no_caller() -> None:
    """A tensor of the loop's own has only the line that asked."""

    def fails() -> None:
        raise torch.OutOfMemoryError("asked here")

    stack = seen(fails)
    assert stack.site.function is not None and stack.site.function.endswith("fails")
    assert stack.call_site is NOWHERE
    assert stack.model is None
    stack.frames.clear()
    assert sys.exc_info()[1] is None

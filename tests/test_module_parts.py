"""What belongs to a module is what torch says, and none of the module's own methods is asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memguard.torch_objects.module_parts import (
    children_of,
    gradients_of,
    named_buffers_of,
    named_parameters_of,
    named_parts_of,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.parts = nn.ModuleList([self.first, nn.BatchNorm1d(2), nn.LSTM(2, 2, 2)])
        self.again = self.first
        self.tied = self.first.weight
        self.register_module("none", None)
        self.register_buffer("nothing", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x)


@pytest.mark.parametrize(
    "made",
    [
        Net,
        lambda: nn.DataParallel(Net()),
        lambda: torch.compile(Net()),
        lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
        lambda: torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
    ids=["plain", "wrapped", "compiled", "scripted", "traced", "parametrized"],
)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_names_order_and_identity_are_torchs(made: Any) -> None:
    """Shared modules and weights count once, at their first name."""
    module = made()
    for ours, torchs in (
        (named_parts_of(module), module.named_modules()),
        (named_parameters_of(module), module.named_parameters()),
        (named_buffers_of(module), module.named_buffers()),
    ):
        assert [(name, id(thing)) for name, thing in ours] == [(name, id(thing)) for name, thing in torchs]
    assert [id(child) for child in children_of(module)] == [id(child) for child in module.children()]


def test_gradients_are_asked_of_those_alone_that_may_have_one() -> None:
    """Torch warns of who asks a tensor that is no leaf, unless it retains its own."""
    leaf = torch.ones(2, requires_grad=True)
    plain, retaining = leaf * 2, leaf * 3
    retaining.retain_grad()
    (plain + retaining).sum().backward()
    assert [gradient.tolist() for gradient in gradients_of([leaf, plain, retaining])] == [[5, 5], [1, 1]]

import functools
from typing import Any

import pytest
import torch
from torch import autograd, nn
from torch.autograd import grad

from memguard.guards.differentiates import differentiates


def derive(energy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(energy, x)[0]


class Base(nn.Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)


class Direct(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(self.layer(x).sum(), x)[0]


class Imported(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return grad(self.layer(x).sum(), x)[0]


class FromModule(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return autograd.grad(self.layer(x).sum(), x)[0]


class ThroughFunction(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return derive(self.layer(x).sum(), x)


class ThroughMethod(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forces(x)

    def _forces(self, x: torch.Tensor) -> torch.Tensor:
        return derive(self.layer(x).sum(), x)


class Backward(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer(x).sum().backward()
        return x.grad  # type: ignore[return-value]


class InComprehension(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return [derive(self.layer(x).sum(), x) for _ in range(1)]


class Attribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.derivative = functools.partial(derive)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.derivative(self.layer(x).sum(), x)


class Jacobian(Base):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.autograd.functional.jacobian(self.layer, x)


class Plain(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class TrainsElsewhere(Base):
    """Its training step differentiates, its forward does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def training_step(self, x: torch.Tensor) -> None:
        self(x).sum().backward()

    def penalty(self, x: torch.Tensor) -> torch.Tensor:
        return derive(self(x).sum(), x)


class ReadsGradients(Base):
    """Looks at .grad attributes without running the engine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.layer.weight.grad is None
        return self.layer(x)


class CustomFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class UsesCustomFunction(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CustomFunction.apply(self.layer(x))


@pytest.mark.parametrize(
    "kind",
    [Direct, Imported, FromModule, ThroughFunction, ThroughMethod, Backward, InComprehension, Attribute, Jacobian],
    ids=lambda kind: kind.__name__,
)
def test_a_forward_that_differentiates_is_recognised(kind: type[nn.Module]) -> None:
    """However it gets at the engine; also as a part of another model."""
    assert differentiates(kind())
    assert differentiates(nn.Sequential(nn.Linear(2, 2), kind()))


@pytest.mark.parametrize(
    "kind", [Plain, TrainsElsewhere, ReadsGradients, UsesCustomFunction], ids=lambda kind: kind.__name__
)
def test_an_ordinary_forward_is_not(kind: type[nn.Module]) -> None:
    """Code that forward does not reach does not count, nor do .grad and custom functions."""
    assert not differentiates(kind())


def test_library_models_are_not_searched() -> None:
    """Torch's own modules do not differentiate inside."""
    assert not differentiates(nn.Transformer(8, 2, 1, 1, 16, batch_first=True))

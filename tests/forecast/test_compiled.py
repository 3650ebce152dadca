"""torch.compile in a forecast: the code that Inductor writes is what is counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memguard
from memguard.forecast import forecast_of
from memguard.forecast.result import Forecast

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a forecast forks")
_MIB = 2**20
_ROWS, _WIDTH = 1024, 1024


class _Chain(nn.Module):
    """A product and then five operators that each keep something for the backward when they run one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return nn.functional.dropout((y.sin() * y.cos()).tanh().exp().sigmoid(), 0.1)


def _forecast(wrap: Callable[[nn.Module], Any]) -> Forecast:
    def make(_: int | None) -> tuple[nn.Module, Any, Callable[[], None]]:
        with torch.device("cuda"):
            model = _Chain()
            x = torch.randn(_ROWS, _WIDTH)
        run = wrap(model)

        def step() -> None:
            run(x).sum().backward()
            model.zero_grad()

        return model, None, step

    return forecast_of(make, device="8GiB", steps=2, suggest=False)


def test_a_compiled_step_keeps_what_its_graph_keeps() -> None:
    """Fused operators keep the product alone, and one graph holds nothing between them; no part is a bound."""
    eager, compiled = _forecast(lambda model: model), _forecast(torch_compile)
    one = _ROWS * _WIDTH * 4
    assert eager.steady_step.allocated_peak_bytes - compiled.steady_step.allocated_peak_bytes >= 3 * one
    assert compiled.notes == ()


def test_a_backend_that_is_not_inductor_is_said_to_be_a_bound() -> None:
    """The eager step is counted, and the forecast says so."""
    found = _forecast(lambda model: torch_compile(model, backend="aot_eager"))
    assert found.steady_step.allocated_peak_bytes == _forecast(lambda model: model).steady_step.allocated_peak_bytes
    assert any("upper bound" in note for note in found.notes)


def test_a_compiled_optimizer_keeps_its_states_and_takes_nothing_beside_them() -> None:
    """The states that the compiler lets it make stay; its update is one kernel over all parameters."""

    def make(_: int | None) -> tuple[nn.Module, Any, Callable[[], None]]:
        model = nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(4))).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        update = torch_compile(optimizer.step)

        def step() -> None:
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            update()
            optimizer.zero_grad()

        return model, optimizer, step

    found = forecast_of(make, device="8GiB", steps=2, suggest=False)
    model = 4 * _WIDTH * _WIDTH * 4
    assert found.notes == ()
    assert 4 * model <= found.allocated_peak_bytes < 4 * model + _MIB


class _Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1).sin()


def test_a_compiled_checkpoint_with_random_numbers_is_no_bound() -> None:
    """What is computed again draws the numbers of its forward: the compiler passes the state of a generator."""

    def make(_: int | None) -> tuple[None, None, Callable[[], None]]:
        part = _Attention()

        @torch_compile
        def run(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint(part, x.cos(), use_reentrant=False)
            return y.sum()

        x = torch.zeros(4, 8, 256, 64, device="cuda", requires_grad=True)

        def step() -> None:
            run(x).backward()  # type: ignore[no-untyped-call]

        return None, None, step

    assert forecast_of(make, device="8GiB", steps=2, suggest=False).notes == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, where it loads its compiler
def test_what_was_compiled_before_the_forecast_is_compiled_in_it() -> None:
    """A module that the caller compiled gives the same figures as one that is compiled while the step is built."""
    model = _Chain()
    compiled = torch.compile(model)
    x = torch.randn(_ROWS, _WIDTH)

    def step() -> None:
        compiled(x).sum().backward()
        model.zero_grad()

    try:
        found = memguard.forecast(step, model=compiled, device="8GiB", steps=2, suggest=False)
    finally:
        torch._dynamo.reset()
    expected = _forecast(torch_compile)
    assert found.steady_step.allocated_peak_bytes == expected.steady_step.allocated_peak_bytes


def torch_compile(model: nn.Module, **options: Any) -> Any:
    """The function that has the name when the step is built."""
    return torch.compile(model, **options)

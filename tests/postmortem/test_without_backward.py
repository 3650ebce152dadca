"""Out of memory where no backward ever came: what carries the graphs is named, and the first advice cures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.guard import Guard

ROWS, WIDTH, SAMPLES = 64, 256, 1200


class Cell(nn.Module):
    """A model that is asked by a method of its own, and never called."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(32, WIDTH), nn.Linear(WIDTH, 32)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next prediction and state."""
        h = self.cell(x, h)
        return self.out(h), h


def stream(guard: Guard, *, cut: bool) -> None:
    """A state of a model in training mode goes on from sample to sample."""
    net, h = Cell(), torch.zeros(ROWS, WIDTH)
    guard.add(net.cell)
    guard.add(net.out)
    for _ in range(SAMPLES):
        pred, h = net.step(torch.randn(ROWS, 32), h)  # carried
        if cut:
            h = h.detach()
    assert pred.shape == (ROWS, 32)


def bare_filter(guard: Guard, *, cut: bool) -> None:
    """Likewise without any module."""
    weights, state = (torch.randn(WIDTH, WIDTH) * 0.05).requires_grad_(), torch.zeros(ROWS, WIDTH)
    for _ in range(SAMPLES):
        state = torch.tanh(state @ weights + 1)  # carried
        if cut:
            state = state.detach()


def test_the_state_that_carries_all_graphs_is_named(tmp_path: Path) -> None:
    """Not the batch is too large: its size would not help."""
    for number, (program, holder) in enumerate({stream: "h", bare_filter: "state"}.items()):
        told = fail(program, tmp_path / str(number))
        assert told["cause_kind"] == "leak"
        assert f"`{holder}` goes from each" in told["cause"]
        assert told["place"]["line"] in lines_carrying()
        assert f"{holder}.detach()" in told["advice"][0]["text"]
        assert "no_grad" in told["advice"][0]["text"]
        assert told["codes"] == ["MG102"]
        with watched(tmp_path / f"{number}, cut") as guard:
            program(guard, cut=True)


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 64])
def test_one_batch_too_large_is_no_leak(rows: int, tmp_path: Path) -> None:
    """A few forwards without a backward, the first of a program: size alone."""

    def too_large(guard: Guard, *, cut: bool) -> None:
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8)))
        guard.add(model)
        for _ in range(rows):
            model(torch.randn((16 << 20) // 4 // rows, WIDTH)).sum().backward()

    assert fail(too_large, tmp_path)["cause_kind"] == "size"


def test_a_list_of_graphs_that_fills_the_device_at_once_is_its_rule_s(tmp_path: Path) -> None:
    """Memory runs out before eight batches were seen: what is told has the code all the same."""

    def few_batches(guard: Guard, *, cut: bool) -> None:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        guard.add(model)
        seen = []
        for _ in range(20):
            optimizer.zero_grad()
            x = torch.randn(4096, WIDTH)
            model(x).square().mean().backward()
            optimizer.step()
            seen.append(model(x).mean())  # kept

    told = fail(few_batches, tmp_path)
    assert told["cause_kind"] == "leak" and told["codes"] == ["MG101"]


def fail(program: Callable[..., None], logdir: Path) -> dict[str, Any]:
    guard = watched(logdir)
    with pytest.raises(torch.OutOfMemoryError), guard:
        program(guard, cut=False)
    told = guard.result().oom
    assert told is not None
    return {**told, "codes": [finding.code for finding in guard.result().findings]}


def watched(logdir: Path) -> Guard:
    return memguard.watch(device="virtual:64MiB", logdir=str(logdir), quiet=True)


def lines_carrying() -> list[int]:
    return [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# carried")]

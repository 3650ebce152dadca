"""Phases that a trainer's methods name: exact peaks, and classes as they were afterwards."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch
from torch import nn

import memguard

MIB = 2**20


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]


class Worker:
    """As verl has it: one method for each part of a step."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.1)
        self.brackets: dict[str, int] = {}

    def _spike(self, name: str, mib: int) -> None:
        before = memguard.memory_allocated()
        spike = torch.empty(mib * MIB, dtype=torch.uint8)
        self.brackets[name] = max(self.brackets.get(name, 0), memguard.memory_allocated(), before)
        del spike

    def generate_sequences(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            answers = self.policy(x)
        self._spike("rollout", 40)
        return answers  # type: ignore[no-any-return]

    def compute_log_prob(self, x: torch.Tensor) -> torch.Tensor:
        self._spike("log-probs", 10)
        return self.policy(x)  # type: ignore[no-any-return]

    def update_policy(self, x: torch.Tensor) -> float:
        for part in x.chunk(2):
            self.compute_log_prob(part).square().mean().backward()
        self._spike("update", 20)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return 0.0


class Ordinary:
    """One name alone is no trainer of this kind."""

    def __init__(self) -> None:
        self.policy = Policy()

    def rollout(self, x: torch.Tensor) -> torch.Tensor:
        return self.policy(x)  # type: ignore[no-any-return]


def test_methods_are_phases_with_the_peaks_of_brackets(tmp_path: Path) -> None:
    """From the first forward that a method calls on; the class has its own methods back at the end."""
    worker, before = Worker(), dict(vars(Worker))
    with memguard.watch(worker.policy, worker.optimizer, device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in range(4):
            x = torch.randn(8, 16)
            worker.generate_sequences(x)
            worker.update_policy(x)
        assert list(inspect.signature(Worker.update_policy).parameters) == ["self", "x"]
    rows = guard.result().phases
    assert {name: row.times for name, row in rows.items()} == {"rollout": 3, "update": 4, "update > log-probs": 8}
    peaks = {name.split(" > ")[-1]: row.allocated_peak_bytes for name, row in rows.items()}
    assert peaks == worker.brackets
    assert dict(vars(Worker)) == before


def test_one_method_of_such_a_name_is_no_trainer(tmp_path: Path) -> None:
    """Its class stays as it is, and there is no row."""
    ordinary, before = Ordinary(), dict(vars(Ordinary))
    with memguard.watch(ordinary.policy, device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        ordinary.rollout(torch.randn(2, 16))
        assert dict(vars(Ordinary)) == before
    assert not guard.result().phases


def test_two_guards_share_the_methods(tmp_path: Path) -> None:
    """The one that ends first leaves them to the other one."""
    worker, before = Worker(), dict(vars(Worker))
    x = torch.randn(8, 16)
    outer = memguard.watch(worker.policy, device="virtual:256MiB", logdir=tmp_path / "outer", quiet=True)
    inner = memguard.watch(worker.policy, device="virtual:256MiB", logdir=tmp_path / "inner", quiet=True)
    with outer:
        worker.generate_sequences(x)
        with inner:
            worker.generate_sequences(x)
            worker.generate_sequences(x)
        worker.generate_sequences(x)
    assert outer.result().phases["rollout"].times == 3
    assert inner.result().phases["rollout"].times == 2
    assert dict(vars(Worker)) == before

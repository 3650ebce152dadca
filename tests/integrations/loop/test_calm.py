"""In a batch that nobody looks at ordinary forwards are passed over; everything else is met as in any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.session import Session

LOOKED_AT = 64


class Outer(nn.Module):
    """A model that asks another root, in eval mode, in the middle of its own forward."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self._teachers = [teacher]
        self.with_graph: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = self._teachers[0](x)
        self.with_graph.append(answer.requires_grad)
        return self.layer(x) + answer.detach()


class Heard:
    """Counts the forwards that a session hears of."""

    def __init__(self, session: Session, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        start = session.forward_start

        def forward_start(*args: Any) -> None:
            self.count += 1
            start(*args)

        patch.setattr(session, "forward_start", forward_start)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


def test_ordinary_forwards_are_unsampled_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first batches only those that are looked at are heard; all of them are counted and recorded."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for _ in range(LOOKED_AT):
            step(model, optimizer)
        heard: list[object] = []
        listeners = guard.session.probes._dense
        probe, _ = listeners["on_forward_start"][0]
        monkeypatch.setitem(listeners, "on_forward_start", ((probe, lambda *args: heard.append(args[0])),))
        for _ in range(48):
            step(model, optimizer)
        assert 1 <= len(heard) <= 3, "one in sixteen; on a busy machine fewer"
        assert guard.session.oom._forwards.now == 1
        assert guard.session.calm.under_way == []
    assert len(guard.records) == LOOKED_AT + 48


def test_a_forward_in_eval_mode_is_guarded_in_a_calm_batch_too(tmp_path: Path) -> None:
    """Inside a forward that is passed over, one that is not is met and undone: gradients are on behind it."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
    model = Outer(teacher)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch([model, teacher], optimizer, logdir=tmp_path, quiet=True, device="cpu"):
        for _ in range(LOOKED_AT + 20):
            step(model, optimizer)
            assert torch.is_grad_enabled()
    assert not model.with_graph[-1], "the teacher's graph would be for nobody"
    assert set(model.with_graph[LOOKED_AT:]) == {False}


def test_a_failing_forward_of_a_calm_batch_is_met(tmp_path: Path) -> None:
    """It is no ordinary one at its end, and the batches after it are passed over again."""

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.fails = nn.Linear(4, 1), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.fails:
                raise RuntimeError("as planned")
            return self.layer(x)

    model = Fails()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[bool] = []
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        end = guard.session.forward_end
        guard.session.forward_end = lambda *args: (seen.append(args[2] is None), end(*args))[1]  # type: ignore[method-assign]
        for _ in range(LOOKED_AT + 5):
            step(model, optimizer)
        guard.session.probes.pace.spend(1.0)  # else what the failure leaves behind is looked at closely
        seen.clear()
        model.fails = True
        with pytest.raises(RuntimeError, match="as planned"):
            step(model, optimizer)
        assert seen == [True]
        model.fails = False
        for _ in range(5):
            step(model, optimizer)
        assert guard.session.calm.under_way == []
    assert seen == [True]


def test_what_happens_in_a_handler_is_not_unsampled_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward that retries while the error is still being handled keeps what the error holds."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for _ in range(LOOKED_AT + 2):
            step(model, optimizer)
        heard = Heard(guard.session, monkeypatch)
        try:
            raise ValueError("first try")
        except ValueError:
            step(model, optimizer)
        assert heard.count == 1


def test_an_interrupt_in_a_calm_batch_leaves_nothing_to_the_next_forward(tmp_path: Path) -> None:
    """A forward that an interrupt left is forgotten: the evaluation after it is guarded, and gradients come back."""

    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.interrupt = nn.Linear(4, 1), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.interrupt:
                raise KeyboardInterrupt
            return self.layer(x)

    model = Interrupted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu"):
        for _ in range(LOOKED_AT + 5):
            step(model, optimizer)
        model.interrupt = True
        with pytest.raises(KeyboardInterrupt):
            step(model, optimizer)
        model.interrupt = False
        model.eval()
        assert not model(torch.ones(2, 4)).requires_grad
        assert torch.is_grad_enabled()
        model.train()
        for _ in range(3):
            step(model, optimizer)
            assert torch.is_grad_enabled()

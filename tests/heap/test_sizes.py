"""What the models own, up to a bound."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.autograd import graph
from memguard.errors import MemGuardError
from memguard.torch_objects import storages


class Vast(nn.Module):
    """Holds 30 parameters that it never uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.rest = nn.ParameterList(torch.zeros(1) for _ in range(30))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_the_models_own_their_parameters_and_buffers() -> None:
    """Each storage once, with its bytes."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
    owned = storages.owned_storages([model, model[0]])
    assert sorted(owned.values()) == [8, 16, 16, 16, 16, 64]
    assert storages.storage_key(model[0].weight)[0] in owned  # type: ignore[index]


def test_more_parameters_than_any_model_has_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The probes that would list them fall silent with one line each; the records go on."""
    monkeypatch.setattr(storages, "MOST_OWNED", 20)
    model = Vast()
    with pytest.raises(MemGuardError, match="32 parameters and buffers"):
        storages.owned_storages([model])
    optimizer = torch.optim.SGD(model.used.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert len(guard.records) == 6
    told = [record.getMessage() for record in caplog.records]
    assert told and len(set(told)) == len(told) and all("reads 20 at most" in text for text in told)


def test_the_class_of_a_function_is_not_kept_alive() -> None:
    """One made in a closure holds what that holds: the static tensors of a captured graph, say."""

    def asked() -> tuple[weakref.ref[torch.Tensor], weakref.ref[type]]:
        static = torch.ones(4)

        class Adds(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                return x + static

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                return gradients[0]

        output = Adds.apply(torch.ones(4, requires_grad=True))
        graph.saved_storages(output.grad_fn)
        return weakref.ref(static), weakref.ref(Adds)

    static, function = asked()
    gc.collect()
    assert function() is None
    assert static() is None

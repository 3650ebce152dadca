"""Scripted modules: they refuse hooks of their own, and are watched all the same."""

import copy
import io

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.loop.hooks import can_be_called
from tests.hooks import hooks_on


@pytest.mark.filterwarnings("ignore:`torch.jit")  # a DeprecationWarning, from torch 2.15 on a FutureWarning
def test_a_scripted_model_is_watched_saved_and_copied() -> None:
    """Its batches are counted, its file and copies are as without memguard, and the hooks go."""
    plain = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with memguard.watch(plain, optimizer, device="cpu") as guard:
        for _ in range(3):
            plain(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        buffer = io.BytesIO()
        torch.jit.save(plain, buffer)
        again = copy.deepcopy(plain)
    assert len(guard.records) == 3
    assert not hooks_on(plain)
    loaded = torch.jit.load(io.BytesIO(buffer.getvalue()))
    x = torch.randn(2, 4)
    assert torch.equal(loaded(x), plain(x)) and torch.equal(again(x), plain(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_scripted_model_can_be_called() -> None:
    """Its class refuses to tell its forward; a list of modules has none."""
    assert can_be_called(torch.jit.script(nn.Sequential(nn.Linear(4, 4))))
    assert can_be_called(nn.Linear(4, 4)) and not can_be_called(nn.ModuleList([nn.Linear(4, 4)]))

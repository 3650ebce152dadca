"""What the probes alone take of a batch, in two healthy loops: ``python -m tests.bench probes``.

Their own clock is read after each batch. Each loop runs several times; of each batch the cheapest run counts, so that
what else the machine does is left out, and what memguard does in that very batch is not.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.evidence.sampling_budget import FIRST_BATCHES
from tests.bench.rows import Row

BATCHES, RUNS = 256, 5
Train = Callable[[str], tuple[nn.Module, Callable[[], None]]]
"""Told a device; a model, and one step of its training."""
HEADS, BLOCKS, WIDTH, LENGTH, VOCABULARY = 4, 6, 64, 32, 65


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.before(x)).split(width, dim=2)
        query, key, value = (p.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for p in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    """A small language model that returns logits and loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(tokens) + self.places(torch.arange(LENGTH, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds a batch with all probes and sampled, the first batches, and the dearest one."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    runs = 2 if quick else RUNS
    rows = []
    for name, train in (("small perceptron", _perceptron), ("transformer", _transformer)):
        dense = _cheapest(train, device, runs, every=True)
        sampled = _cheapest(train, device, runs, every=False)
        rows += [
            Row(f"{name}, probes on every batch", 1e6 * statistics.median(dense[FIRST_BATCHES:]), "us/batch"),
            Row(f"{name}, probes sampled", 1e6 * statistics.mean(sampled[FIRST_BATCHES:]), "us/batch"),
            Row(f"{name}, the first {FIRST_BATCHES} batches together", 1e3 * sum(sampled[:FIRST_BATCHES]), "ms", 200.0),
            Row(f"{name}, the dearest batch", 1e3 * max(*dense, *sampled), "ms", 2.0),
        ]
    return rows


def _cheapest(train: Train, device: str, runs: int, *, every: bool) -> list[float]:
    """Seconds that the probes took in each batch, the least of some runs."""
    return [min(costs) for costs in zip(*(_run(train, device, every=every) for _ in range(runs)), strict=True)]


def _run(train: Train, device: str, *, every: bool) -> list[float]:
    model, step = train(device)
    costs = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if every:
            patch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", 1 << 60)
        with memguard.watch(model, logdir=folder, quiet=True) as guard:
            probes, before = guard.session.probes, 0.0
            for _ in range(BATCHES):
                step()
                costs.append(probes.seconds - before)
                before = probes.seconds
        assert not [finding for finding in guard.findings if finding.severity.name != "INFO"]
    return costs


def _perceptron(device: str) -> tuple[nn.Module, Callable[[], None]]:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.ones(8, 32, device=device), torch.zeros(8, 1, device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return model, step


def _transformer(device: str) -> tuple[nn.Module, Callable[[], None]]:
    model = Transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(VOCABULARY, (2, LENGTH), device=device)

    def step() -> None:
        optimizer.zero_grad()
        _, loss = model(tokens)
        loss.backward()
        optimizer.step()

    return model, step

"""Metrics are added up by an immutable dataclass with an __add__ of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Tally:
    nll: Tensor = field(default_factory=lambda: torch.zeros(()))
    hits: int = 0
    seen: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.nll + other.nll, self.hits + other.hits, self.seen + other.seen)


def train_epoch(net: nn.Module, optim: torch.optim.Optimizer, batches: list) -> Tally:
    tally = Tally()
    for inputs, targets in batches:
        logits = net(inputs)
        nll = nn.functional.cross_entropy(logits, targets)
        optim.zero_grad()
        nll.backward()
        optim.step()
        hits = int((logits.argmax(-1) == targets).sum())
        tally = tally + Tally(nll, hits, len(targets))  # !MG101 tally
    return tally


net = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 10))
optim = torch.optim.RMSprop(net.parameters(), lr=1e-3)
batches = [(torch.rand(8, 1, 8, 8), torch.randint(10, (8,))) for _ in range(24)]
for _ in range(2):
    t = train_epoch(net, optim, batches)
    print(t.nll.item() / t.seen)

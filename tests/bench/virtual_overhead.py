"""How much the virtual GPU slows a training of ordinary layers: ``python -m tests.bench.virtual_overhead``."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from memguard.backends.virtual import VirtualBackend
from tests.bench.rows import Row

STEPS, ROUNDS = 5, 5


def measure(hidden: int = 1024, batch: int = 64, layers: int = 4) -> list[Row]:
    """The factor for an MLP with AdamW, and the cost of one operator."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(layers)])
    optimizer, x = torch.optim.AdamW(net.parameters(), lr=1e-6), torch.randn(batch, hidden)

    def steps() -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return time.perf_counter() - began

    steps()
    bare, virtual = [], []
    for _ in range(ROUNDS):  # by turns, so that what else the machine does touches both
        bare.append(steps())
        with_it = VirtualBackend(24 << 30, conf="")
        with_it.install()
        steps()
        virtual.append(steps())
        with_it.remove()
    factor = statistics.median(v / b for v, b in zip(virtual, bare, strict=True))
    return [
        Row(f"virtual GPU, training, hidden {hidden}, batch {batch}", factor, "x", at_most=1.5),
        Row("virtual GPU, one small operator", _operator_microseconds(), "us"),
    ]


def _operator_microseconds(calls: int = 5000) -> float:
    x = torch.ones(8)

    def once() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            x + x
        return (time.perf_counter() - began) / calls * 1e6

    bare = min(once() for _ in range(5))
    backend = VirtualBackend(24 << 30, conf="")
    backend.install()
    try:
        return min(once() for _ in range(5)) - bare
    finally:
        backend.remove()


if __name__ == "__main__":
    for row in measure():
        print(f"{row.label:60}{row.value:8.2f} {row.unit}")

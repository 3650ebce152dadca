"""How much the virtual GPU slows a training: ``python -m tests.bench.virtual_overhead``.

Its floor is a dispatch mode that does nothing: torch hands every operator to Python for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from memguard.backends.virtual import VirtualBackend
from tests.bench.rows import Row

STEPS, ROUNDS = 5, 9


class _Idle(TorchDispatchMode):
    """Passes every operator on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


@contextmanager
def _virtual() -> Iterator[None]:
    backend = VirtualBackend(24 << 30, conf="")
    backend.install()
    try:
        yield
    finally:
        backend.remove()


def measure(hidden: int = 1024, batch: int = 64, layers: int = 4) -> list[Row]:
    """The factors for an MLP with AdamW and for a recurrent network, and the cost of one operator."""
    dense, _ = _factors(_dense(hidden, batch, layers))
    recurrent, idle = _factors(_recurrent())
    return [
        Row(f"virtual GPU, training, hidden {hidden}, batch {batch}", dense, "x", at_most=1.5),
        Row("virtual GPU, recurrent network of small operators", recurrent, "x"),
        Row("the same with a dispatch mode that does nothing", idle, "x"),
        Row("virtual GPU beside that mode", recurrent / idle, "x", at_most=1.8),
        Row("virtual GPU, one small operator", _operator_microseconds(), "us"),
    ]


def _factors(step: Callable[[], None]) -> tuple[float, float]:
    """How many times longer steps take on the virtual GPU, and with a mode that does nothing."""

    def steps() -> float:
        step()
        began = time.process_time()
        for _ in range(STEPS):
            step()
        return time.process_time() - began

    virtual, idle = [], []
    for _ in range(ROUNDS):  # by turns, so that what else the machine does touches all of them
        bare = steps()
        with _virtual():
            virtual.append(steps() / bare)
        with _Idle():  # type: ignore[no-untyped-call]
            idle.append(steps() / bare)
    return statistics.median(virtual), statistics.median(idle)


def _dense(hidden: int, batch: int, layers: int) -> Callable[[], None]:
    net = nn.Sequential(*[nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(layers)])
    optimizer, x = torch.optim.AdamW(net.parameters(), lr=1e-6), torch.randn(batch, hidden)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def _recurrent() -> Callable[[], None]:
    embed, cell, head = nn.Embedding(64, 32), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 64)
    net = nn.ModuleList([embed, cell, head])
    optimizer, text = torch.optim.Adam(net.parameters()), torch.randint(64, (16, 17))

    def step() -> None:
        hidden, _ = cell(embed(text[:, :-1]))
        optimizer.zero_grad()
        functional.cross_entropy(head(hidden).flatten(0, 1), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    return step


def _operator_microseconds(calls: int = 5000) -> float:
    x = torch.ones(8)

    def once() -> float:
        began = time.perf_counter()
        for _ in range(calls):
            x + x
        return (time.perf_counter() - began) / calls * 1e6

    bare = min(once() for _ in range(5))
    with _virtual():
        return min(once() for _ in range(5)) - bare


if __name__ == "__main__":
    for row in measure():
        print(f"{row.label:60}{row.value:8.2f} {row.unit}")

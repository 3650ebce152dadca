"""One small training whose every number is kept, and what a guard must not change about it."""

from __future__ import annotations

import contextlib
import logging
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import torch
from torch import nn
from torch.nn import functional

import memguard

Guarding = Callable[..., contextlib.AbstractContextManager[Any]]
Numbers = list[torch.Tensor]


def net() -> nn.Sequential:
    """Dropout shows a disturbed random state; two stems for the probes."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def batches(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same batches each time."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.randn(4, 8, generator=generator), torch.randint(0, 4, (4,), generator=generator)


def seed() -> None:
    """Each run begins alike."""
    torch.manual_seed(0)
    random.seed(0)


def weights(model: nn.Module) -> Numbers:
    """A model's parameters as they are now."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def random_state() -> Numbers:
    """What the random generators would say next."""
    return [torch.get_rng_state(), torch.tensor(random.random())]


def step(model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One step of a training; returns the loss."""
    loss = functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().clone()


def train(guarding: Guarding, *, model: nn.Module | None = None, epochs: int = 2, count: int = 4) -> Numbers:
    """Trains with validation that forgets no_grad; returns losses, weights and the state of the random generators."""
    seed()
    model = net() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    numbers: Numbers = []
    with guarding(model, optimizer) as guard:
        for _ in range(epochs):
            model.train()
            loader: Any = list(batches(count))
            for x, y in guard.batches(loader) if guard is not None else loader:
                loss = functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                numbers.append(loss.detach().clone())
            model.eval()
            for x, y in batches(2):
                numbers.append(functional.cross_entropy(model(x), y).detach())
            numbers.append(torch.tensor(torch.is_grad_enabled()))
    return [*numbers, *weights(model), *random_state()]


@contextlib.contextmanager
def unguarded(*args: object) -> Iterator[None]:
    """No guard at all."""
    yield


def watched(logdir: Path, **options: Any) -> Guarding:
    """A guard of the plain front door."""
    return lambda *args: memguard.watch(*args, logdir=logdir, quiet=True, **options)


@final
class Truth:
    """Numbers of a run, kept where no tensor is: tests to come find no copies of their model's weights in them."""

    def __init__(self, numbers: Numbers) -> None:
        self._kept = pickle.dumps([number.numpy() for number in numbers])

    def numbers(self) -> Numbers:
        """The tensors again."""
        return [torch.from_numpy(each) for each in pickle.loads(self._kept)]


def assert_same(numbers: Numbers, truth: Numbers | Truth) -> None:
    """Bit for bit."""
    truth = truth.numbers() if isinstance(truth, Truth) else truth
    assert len(numbers) == len(truth) > 0
    for number, (got, expected) in enumerate(zip(numbers, truth, strict=True)):
        assert torch.equal(got, expected), f"number {number}: {got} instead of {expected}"


def first_lines(records: list[logging.LogRecord]) -> list[str]:
    """The first line of each message that memguard logged."""
    return [record.getMessage().partition("\n")[0] for record in records if record.name == "memguard"]

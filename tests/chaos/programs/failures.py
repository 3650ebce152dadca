"""Steps of the user that fail, and threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.chaos.training import Guarding, Numbers, batches, net, seed, step, weights


def threads_call_the_model(guarding: Guarding) -> Numbers:
    """As DataParallel does it: several threads call the model, in both modes, while it trains."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers: Numbers = []

    def work(x: torch.Tensor, results: dict[int, torch.Tensor], number: int) -> None:
        results[number] = model(x)

    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
            model.eval()
            results: dict[int, torch.Tensor] = {}
            threads = [threading.Thread(target=work, args=(x, results, number)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            numbers += [torch.tensor(results[number].requires_grad) for number in range(3)]
            sum(result.sum() for result in results.values()).backward()  # type: ignore[union-attr]
            numbers += [results[number].detach() for number in range(3)]
            model.train()
    return [*numbers, *weights(model)]


def exceptions_of_the_user(guarding: Guarding) -> Numbers:
    """A step that fails at each of its places, in both modes, and goes on."""
    seed()
    fail: list[str] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.net(x)
            if fail:
                raise {"error": ValueError, "interrupt": KeyboardInterrupt, "exit": SystemExit}[fail.pop()]("mine")
            return y

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(3):
            for kind in ("error", "interrupt", "exit"):
                for training in (True, False):
                    model.train(training)
                    fail.append(kind)
                    with pytest.raises((ValueError, KeyboardInterrupt, SystemExit), match="mine"):
                        model(x)
                    model.train()
                    numbers.append(step(model, optimizer, x, y))
                    numbers.append(torch.tensor(torch.is_grad_enabled()))
    return [*numbers, *weights(model)]


def failures_outside_of_the_forward(guarding: Guarding) -> Numbers:
    """The loss, a hook of the backward, the optimizer's step and the loader fail in turn, and the loop goes on."""
    seed()
    fail: list[str] = []

    def failing(place: str) -> None:
        if place in fail:
            fail.remove(place)
            raise ValueError(f"mine, in the {place}")

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            failing("step")
            return super().step(closure)

    def loader() -> Any:
        for number, batch in enumerate(batches(12)):
            if number % 4 == 3:
                fail.append("loader")
            failing("loader")
            yield batch

    model = net()
    model[0].weight.register_hook(lambda gradient: failing("backward"))
    optimizer = Optimizer(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer) as guard:
        for place in ("loss", "backward", "step", "nowhere"):
            with pytest.raises(ValueError, match="mine, in the loader"):
                for x, y in guard.batches(loader()) if guard is not None else loader():
                    fail.append(place)
                    try:
                        loss = functional.cross_entropy(model(x), y)
                        failing("loss")
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                    except ValueError as error:
                        numbers.append(torch.tensor(len(str(error))))
                    fail.clear()
                    numbers.append(loss.detach().clone())
    return [*numbers, *weights(model)]


def trained_in_another_thread(guarding: Guarding) -> Numbers:
    """The guard is opened in one thread; two others train in turn, each with its own grad mode."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers: Numbers = []

    def work() -> None:
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
        model.eval()
        numbers.extend(model(x).detach() for x, _ in batches(2))
        model.train()
        numbers.append(torch.tensor(torch.is_grad_enabled()))

    with guarding(model, optimizer):
        for _ in range(2):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    return [*numbers, *weights(model)]

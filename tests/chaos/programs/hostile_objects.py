"""Modules, batches, loaders and variables whose every method raises."""

from __future__ import annotations

import types
import unittest.mock
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.chaos.training import Guarding, Numbers, batches, net, seed, step, weights


class Hostile(nn.Module):
    """Everything that a guard could ask of it raises, save what torch itself needs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner",):
            return super().__getattr__(name)
        raise AttributeError(name) if name.startswith("_") else RuntimeError(f"asked for {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = nn.Module.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("shown")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("asked for its truth")

    def __len__(self) -> int:
        raise RuntimeError("counted")

    def __iter__(self) -> Any:
        raise RuntimeError("walked")


def hostile_module(guarding: Guarding) -> Numbers:
    """A module whose dunder methods all raise."""
    seed()
    model = Hostile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
        model.eval()
        numbers += [model(x).detach() for x, _ in batches(2)]
    return [*numbers, *weights(model)]


class OwnNames(nn.Module):
    """A meta-learner's net: `parameters` answers with a list of the weights; two other names are the user's as well."""

    def __init__(self) -> None:
        super().__init__()
        self.vars = nn.ParameterList([nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.randn(4))])
        self.children: Any = []
        self.buffers: Any = {"mean": 0.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.vars[0], self.vars[1])

    def parameters(self, recurse: bool = True) -> Any:
        return self.vars

    def modules(self) -> Any:
        raise RuntimeError("asked for its modules")

    named_modules = named_parameters = named_buffers = named_children = modules


def names_of_its_own(guarding: Guarding) -> Numbers:
    """A module whose methods and attributes have the names of torch's own, and mean something else."""
    seed()
    model = OwnNames()
    optimizer = torch.optim.SGD(list(model.vars), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
        model.training = False
        numbers += [model(x).detach() for x, _ in batches(2)]
    return [*numbers, *(weight.detach().clone() for weight in model.vars)]


class HostileBatch(dict[Any, Any]):
    """A batch that answers nothing but what the loop asks."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            raise RuntimeError("asked for something else")
        return super().__getitem__(key)

    def __len__(self) -> int:
        raise RuntimeError("counted")

    def __iter__(self) -> Any:
        raise RuntimeError("walked")

    def items(self) -> Any:
        raise RuntimeError("walked")

    values = keys = items

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def hostile_batches(guarding: Guarding) -> Numbers:
    """Batches and outputs whose methods raise."""
    seed()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, batch: Any) -> Any:
            return HostileBatch(logits=self.net(batch["x"]))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer) as guard:
        loader: Any = [HostileBatch(x=x, y=y) for x, y in batches(4)]
        for batch in guard.batches(loader) if guard is not None else loader:
            loss = functional.cross_entropy(model(batch)["logits"], batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            numbers.append(loss.detach().clone())
    return [*numbers, *weights(model)]


def iterable_dataset_without_a_length(guarding: Guarding) -> Numbers:
    """A DataLoader whose __len__ raises."""

    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return batches(4)

    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer) as guard:
        loader: Any = torch.utils.data.DataLoader(Endless(), batch_size=None)
        return [step(model, optimizer, x, y) for x, y in (guard.batches(loader) if guard is not None else loader)]


class HostileLoader:
    """A loader that can be iterated over and nothing else."""

    def __iter__(self) -> Any:
        return batches(4)

    def __len__(self) -> int:
        raise RuntimeError("counted")

    def __bool__(self) -> bool:
        raise RuntimeError("asked for its truth")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("shown")


def hostile_loader(guarding: Guarding) -> Numbers:
    """A loader that answers nothing."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer) as guard:
        loader: Any = HostileLoader()
        return [step(model, optimizer, x, y) for x, y in (guard.batches(loader) if guard is not None else loader)]


class Untouchable:
    """Whatever is asked of it, also for its class: it raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")

    def _raise(self, *args: object) -> Any:
        raise RuntimeError("touched")

    __eq__ = __ne__ = __lt__ = __hash__ = __repr__ = __str__ = __bool__ = __len__ = __iter__ = _raise  # type: ignore[assignment]
    __getitem__ = __contains__ = __call__ = __sizeof__ = __dir__ = __format__ = __reduce__ = _raise  # type: ignore[assignment]


class Endless:
    """Has every attribute, and each is another of its kind."""

    def __getattr__(self, name: str) -> Endless:
        return Endless()


class Untrue(dict[Any, Any]):
    """A dict that says it holds what it does not, and fails when asked for it."""

    def __len__(self) -> int:
        return 10**9

    def __iter__(self) -> Any:
        raise RuntimeError("walked")

    keys = values = items = __getitem__ = __iter__


def hostile_variables() -> dict[str, Any]:
    """What may stand in anybody's locals while memguard looks for the variable that keeps a graph."""
    gone: Any = weakref.proxy(nn.Linear(1, 1))
    circle: list[Any] = []
    circle.append(circle)
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda name: 1 // 0  # type: ignore[method-assign]
    waiting = (number // 0 for number in range(3))
    things: list[Any] = [Untouchable(), Endless(), Untrue(), gone, circle, lazy, waiting, unittest.mock.MagicMock()]
    return {"things": things, "table": dict(enumerate(things))}


def hostile_variables_beside_a_leak(guarding: Guarding) -> Numbers:
    """The walk that names a leak meets all of them, in locals, in lists, in the model itself."""
    seed()
    model: Any = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    untouchable, endless, untrue, gone, circle, lazy, waiting, mock = hostile_variables()["things"]
    model.settings = hostile_variables()
    history: list[Any] = [untouchable, gone]
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(40):
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss)  # the leak
            numbers.append(loss.detach().clone())
    del untouchable, endless, untrue, gone, circle, lazy, waiting, mock
    return [*numbers, *weights(model)]

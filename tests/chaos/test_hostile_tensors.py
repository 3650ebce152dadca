"""Tensors that cannot be read, or whose reading runs the user's code: passed by, wherever they lie beside a leak."""

from __future__ import annotations

import contextlib
import logging
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import memguard
from tests.chaos.training import batches, net, seed

ran: list[str] = []
"""What of the classes below ran while they were armed."""
armed: list[bool] = []


def _hear(what: object) -> Any:
    if armed:
        ran.append(str(what))
        raise RuntimeError(f"the user's code ran: {what}")


class Functions(torch.Tensor):
    """Every function of torch's that is called with it raises."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _hear(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Attributes(torch.Tensor):
    """Every attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        _hear(name)
        return super().__getattribute__(name)


class Properties(torch.Tensor):
    """What a guard would ask of a tensor raises."""

    device = dtype = shape = grad_fn = requires_grad = is_leaf = property(_hear)  # type: ignore[assignment]

    def numel(self) -> int:
        return int(_hear("numel"))

    def untyped_storage(self) -> Any:
        _hear("untyped_storage")

    def __eq__(self, other: object) -> Any:
        _hear("eq")

    def __hash__(self) -> Any:  # type: ignore[override]
        _hear("hash")

    def __bool__(self) -> Any:
        _hear("bool")

    def __len__(self) -> Any:
        _hear("len")

    def __repr__(self) -> Any:  # type: ignore[override]
        _hear("repr")


class Dispatches(torch.Tensor):
    """A wrapper that answers even for its device."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, (64, 1024), device="cpu", dispatch_sizes_strides_policy="sizes", dispatch_device=True
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _hear(func)

    __torch_function__ = torch._C._disabled_torch_function_impl


class Liar:
    """Says that it is a tensor."""

    @property
    def __class__(self) -> Any:
        return torch.Tensor

    def __getattr__(self, name: str) -> Any:
        _hear(name)
        raise AttributeError(name)


def hostile() -> list[Any]:
    """One of each kind."""
    wrapped: list[Any] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        wrapped.append(x)
        return x.sum()

    torch.func.vmap(keep)(torch.zeros(3, 4))
    torch.func.grad(keep)(torch.zeros(3, 4))
    with FakeTensorMode():  # type: ignore[no-untyped-call]
        fake = torch.empty(1000, 1000)
    with torch.inference_mode():
        inference = torch.zeros(3)
    ragged = [torch.zeros(3), torch.zeros(5)]
    big = torch.zeros(64, 1024)
    return [
        *(nn.LazyLinear(4), nn.parameter.UninitializedParameter(), nn.parameter.UninitializedBuffer()),
        *(torch.empty(1000, 1000, device="meta"), fake, inference, *wrapped),
        *(torch.eye(9).to_sparse(), torch.eye(9).to_mkldnn(), torch.quantize_per_tensor(big, 0.1, 0, torch.qint8)),
        *(torch.nested.nested_tensor(ragged), torch.nested.nested_tensor(ragged, layout=torch.jagged)),
        *(big.clone().as_subclass(Functions), big.clone().as_subclass(Attributes)),
        *(big.clone().as_subclass(Properties), Dispatches(), Liar()),
    ]


def _in_a_list(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    things.append(one)


def _in_the_list_that_leaks(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    state.history.append(one)


def _in_a_dict(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    state.table[len(state.table)] = one


def _in_an_attribute(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    setattr(state, f"a{len(vars(state))}", one)


def _in_a_closure(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    things.append(lambda: one)


def _in_the_model(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    vars(state.model)["extra"] = one


def _as_a_module(things: list[Any], one: Any, state: types.SimpleNamespace) -> None:
    if type(one) is nn.LazyLinear:
        state.model.head = one


PLACES = [
    (_in_a_list, _in_a_dict, _in_a_closure),
    (_in_an_attribute, _in_the_model, _as_a_module),
    (_in_the_list_that_leaks,),
]


@contextlib.contextmanager
def _armed() -> Iterator[None]:
    ran.clear()
    armed.append(True)
    try:
        yield
    finally:
        armed.clear()


@pytest.mark.parametrize("places", PLACES, ids=lambda places: places[0].__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_hostile_tensors_are_passed_by(
    places: tuple[Callable[[list[Any], Any, types.SimpleNamespace], None], ...],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No part is switched off, nothing of the user's runs, and the leak beside them is named."""
    seed()
    made, model = hostile(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    things: list[Any] = []
    state = types.SimpleNamespace(history=[], table={}, model=model)
    with _armed(), memguard.watch(model, optimizer, device="virtual:64MiB", logdir=tmp_path, quiet=True) as guard:
        for number, (x, y) in enumerate(batches(48)):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            state.history.append(loss)  # the leak
            one = made[number % len(made)]  # a local as well
            for put in places:
                put(things, one, state)
    del one
    assert ran == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        told for told in (record.getMessage() for record in caplog.records) if told.startswith("memguard MG")
    ]
    assert "state.history" in [finding.holder for finding in guard.findings if finding.code == "MG101"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_same_tensor_again_and_again_is_no_growth(tmp_path: Path) -> None:
    """A list that gets one tensor over and over takes no more memory than that."""
    seed()
    model, one = net(), torch.zeros(64, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    things: list[Any] = []
    with memguard.watch(model, optimizer, device="virtual:64MiB", logdir=tmp_path, quiet=True) as guard:
        for x, y in batches(100):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            things.append(one)
    assert guard.findings == []

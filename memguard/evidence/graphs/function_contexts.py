"""Custom autograd functions that keep tensors as attributes of their ctx."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes
from memguard.evidence.interface import Probe
from memguard.heap.attributes import file_of, is_user_class
from memguard.heap.children import children
from memguard.heap.containers import tensors_in
from memguard.records.facts import FunctionContextHolds, Place
from memguard.source.model import SourceModel
from memguard.torch_objects.storages import owned_storages, storages_of

LOOKS = frozenset({1, 24})
"""Training forwards of a model whose graph is walked."""


@final
class ContextsProbe(Probe):
    """Walks one graph of each model, and looks at what its Python nodes keep outside save_for_backward."""

    def _prepare(self) -> None:
        self._forwards: dict[int, int] = {}
        self._open: set[int] = set()
        self._told: set[str] = set()

    def on_model(self, model: nn.Module) -> None:
        """One more whose graphs are to be walked."""
        self._forwards.pop(id(model), None)
        self._open.add(id(model))
        self.hear("on_forward_end")

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Walks the second graph of each model, and one later."""
        if self.watch.ledger.current is None or not module.training:
            return
        count = self._forwards[id(module)] = self._forwards.get(id(module), -1) + 1
        if count in LOOKS:
            for tensor in tensors_in(output):
                self._look(tensor)
        if count >= max(LOOKS):
            self._open.discard(id(module))
            if not self._open:
                self.unsubscribe("on_forward_end")

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Walks from the loss where the integration shows it: what lies behind the model counts as well."""
        count = self._forwards[0] = self._forwards.get(0, -1) + 1
        if count in LOOKS:
            self._look(loss)
        if count >= max(LOOKS):
            self.unsubscribe("on_backward_start")

    def _look(self, tensor: torch.Tensor) -> None:
        for node in iter_nodes((tensor.grad_fn,)):
            own = issubclass(type(node), torch.autograd.function.BackwardCFunction)
            function = function_of(type(node)) if own else None
            if function is not None and function.__qualname__ not in self._told and is_user_class(function):
                self._tell(node, function)

    def _tell(self, node: Any, function: type) -> None:
        held = kept_by(node)
        owned = owned_storages(self.watch.models)
        sizes = {name: storages_of(tensors) for name, tensors in held.items()}
        sizes = {name: kept for name, kept in sizes.items() if not kept.keys() <= owned.keys()}
        if not sizes:
            return
        self._told.add(function.__qualname__)
        names = tuple(sizes)
        cycle = any(tensor.grad_fn is node for tensor in held[names[0]])
        total = storages_of(tensor for name in names for tensor in held[name])
        self.report(
            FunctionContextHolds(
                **self.watch.now,
                place=place_of_context(function, names[0]),
                function_name=function.__name__,
                attributes=names,
                bytes=sum(size for key, size in total.items() if key not in owned),
                cycle=cycle,
            )
        )


def kept_by(node: Any) -> dict[str, list[torch.Tensor]]:
    """The tensors that the attributes of a function's context keep: as they are, in nests, or bound in a function.

    Its own output comes first, which is the worst of them. A function that binds neither an input nor the output may
    have been given: what it binds is another's.
    """
    found: dict[str, list[torch.Tensor]] = {}
    for name, value in list(vars(node).items()):
        tensors = list(tensors_in(value, 2))
        if not tensors:
            bound = list(_bound_in(value))
            tensors = bound if any(_is_of(tensor, node) for tensor in bound) else []
        if tensors:
            found[name] = tensors
    return dict(sorted(found.items(), key=lambda each: all(tensor.grad_fn is not node for tensor in each[1])))


def _bound_in(value: Any, depth: int = 2) -> Iterator[torch.Tensor]:
    """What a ``functools.partial`` was given, and what a function closes over."""
    kind = type(value)
    if depth and (kind is types.FunctionType or issubclass(kind, functools.partial)):
        for _, _, part in children(value):
            yield from tensors_in(part, 2)
            yield from _bound_in(part, depth - 1)


def _is_of(tensor: torch.Tensor, node: Any) -> bool:
    """Whether a tensor is an output or an input of a node."""
    made = tensor.grad_fn
    if made is None:
        return any(getattr(before, "variable", None) is tensor for before, _ in node.next_functions)
    return made is node or any(before is made for before, _ in node.next_functions)


def function_of(kind: type) -> type | None:
    """The autograd.Function behind a Python node's class."""
    function = vars(kind).get("_forward_cls")  # checked in torch 2.13
    return function if isinstance(function, type) else None


def place_of_context(function: type, attribute: str) -> Place:
    """The line that stores an attribute on the context of a function, else the class's own."""
    name, model = function.__name__, SourceModel.of(file_of(function))
    kind = next((node for node in model.all_of(ast.ClassDef) if node.name == name), None)
    if kind is None:
        return Place(file=file_of(function))
    parts = (part for part in ast.walk(kind) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store))
    line = min((part.lineno for part in parts if part.attr == attribute), default=None)
    return model.place(line or kind.lineno, name if line is None else f"{name}.forward", f"{name} ctx.{attribute}")

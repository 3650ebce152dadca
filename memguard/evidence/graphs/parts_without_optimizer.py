"""Trainable modules that no optimizer holds."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from torch import nn

from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.roots import submodules_of
from memguard.torch_objects.module_parts import children_of, parameters_of

MAX_ITEMS, MAX_ATTRIBUTES = 8, 32
"""Of a container or a closure, and of an object: what has more holds something else."""
MAX_DEPTH = 3
"""Objects in objects: a partial of a method of an object that has a teacher."""
_OF_TORCH = frozenset(vars(nn.Module()))


def unheld_parts(model: nn.Module, held: Collection[int]) -> Iterator[nn.Module]:
    """The outermost trainable parts without a parameter that is held, then the hidden ones.

    Args:
        model: The model.
        held: Identities of the parameters that optimizers hold.
    """
    yield from _unheld(model, held)
    yield from _hidden(model, held)


def callable_below(module: nn.Module) -> Iterator[nn.Module]:
    """The modules one level below, those in containers that nobody calls (lists, dicts) among them."""
    for child in children_of(module):
        if type(child).forward is nn.Module.forward:
            yield from callable_below(child)
        else:
            yield child


def _unheld(module: nn.Module, held: Collection[int]) -> Iterator[nn.Module]:
    for child in children_of(module):
        parameters = list(parameters_of(child))
        if not any(parameter.requires_grad for parameter in parameters):
            continue
        if any(id(parameter) in held for parameter in parameters):
            yield from _unheld(child, held)
        else:
            yield child


def _hidden(model: nn.Module, held: Collection[int]) -> Iterator[nn.Module]:
    """In a list, a dictionary, a partial, a closure, an object of the user's that a part has as an attribute."""
    known = {id(module) for module in submodules_of(model, set())}
    for part in submodules_of(model, set()):
        for name, value in attributes_of(part).items():
            if name in _OF_TORCH:
                continue
            for module in _modules_in(value, MAX_DEPTH):
                if id(module) in known:
                    continue
                known.add(id(module))
                parameters = list(parameters_of(module))
                if any(p.requires_grad for p in parameters) and not any(id(p) in held for p in parameters):
                    yield module


def _modules_in(value: Any, depth: int) -> Iterator[nn.Module]:
    if issubclass(type(value), nn.Module):
        yield value
    elif depth:
        inner = list(_inside(value))
        most = MAX_ATTRIBUTES if is_user_class(type(value)) else MAX_ITEMS
        for one in inner if len(inner) <= most else ():
            yield from _modules_in(one, depth - 1)


def _inside(value: Any) -> Iterable[Any]:
    """What an object holds; nothing of those that are neither plain containers and functions nor the user's own."""
    kind = type(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    if kind is dict:
        return value.values()  # type: ignore[no-any-return]
    if kind is functools.partial:
        return (value.func, *value.args, *value.keywords.values())
    if kind is types.MethodType:
        return (value.__self__,)
    if kind is types.FunctionType:
        return (*_contents(value.__closure__ or ()), *(value.__defaults__ or ()))
    return attributes_of(value).values() if is_user_class(kind) and not issubclass(kind, type) else ()


def _contents(cells: Iterable[types.CellType]) -> Iterator[Any]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # nothing was put into it yet
            continue

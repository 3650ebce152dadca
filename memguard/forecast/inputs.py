"""The tensors that a step brings along: found in its closure, and given another batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

_DEPTH = 3


def tensors_of(step: Callable[..., Any]) -> Iterator[torch.Tensor]:
    """Tensors that a function reaches by its closure, defaults, and the global names it uses."""
    function = getattr(step, "__func__", step)
    held: list[Any] = [getattr(step, "__self__", None), *(getattr(function, "__defaults__", None) or ())]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet filled
            continue
    code = getattr(function, "__code__", None)
    names = getattr(function, "__globals__", {})
    held += [names[name] for name in (code.co_names if code is not None else ()) if name in names]
    seen: set[int] = set()
    for value in held:
        yield from _inside(value, seen, _DEPTH)


def _inside(value: Any, seen: set[int], depth: int) -> Iterator[torch.Tensor]:
    if id(value) in seen or depth < 0 or isinstance(value, (nn.Module, torch.optim.Optimizer)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _inside(item, seen, depth - 1)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _inside(item, seen, depth - 1)


def resized(shape: torch.Size, batch: int, wanted: int) -> list[int] | None:
    """The shape for another batch size, None if its first dimension is not the batch."""
    if len(shape) == 0 or shape[0] != batch:
        return None
    return [wanted, *shape[1:]]

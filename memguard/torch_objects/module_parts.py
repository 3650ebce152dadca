"""What belongs to a module, read without its own methods.

Users override `parameters` (a meta-learner that answers with its fast weights), or keep an attribute of that name, of
`children` or `modules`; torch's own walk would call theirs. Names, order and identity are those of torch's.

It knows torch outside of the rooms that may, for most of them need it, and probes and guards do not know each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer


def children_of(module: nn.Module) -> Iterator[nn.Module]:
    """The modules right inside a module, each once."""
    return (child for _, child in named_children_of(module))


def named_children_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Likewise, with their names."""
    return iter({id(child): (name, child) for name, child in _items(module, "_modules")}.values())


def parts_of(module: nn.Module) -> Iterator[nn.Module]:
    """A module and all modules inside it, each once, outer before inner."""
    return (part for _, part in named_parts_of(module))


def named_parts_of(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Likewise, with their names as ``"encoder.layers.0"``; the module's own is empty."""
    seen: set[int] = set()
    waiting = [("", module)]
    while waiting:
        name, part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield name, part
            inner = [(f"{name}.{key}" if name else key, child) for key, child in _items(part, "_modules")]
            waiting.extend(reversed(inner))


def parameters_of(module: nn.Module) -> Iterator[nn.Parameter]:
    """All parameters of a module, each once."""
    return (parameter for _, parameter in named_parameters_of(module))


def named_parameters_of(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Likewise, with their names."""
    return _members(module, "_parameters")


def buffers_of(module: nn.Module) -> Iterator[Tensor]:
    """All buffers of a module, each once."""
    return (buffer for _, buffer in named_buffers_of(module))


def named_buffers_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Likewise, with their names."""
    return _members(module, "_buffers")


def stepped_by(optimizers: Iterable[Optimizer]) -> Iterator[Tensor]:
    """The parameters of some optimizers; one may be half made."""
    for optimizer in optimizers:
        for group in vars(optimizer).get("param_groups", ()):
            yield from group.get("params", ())


def gradient_of(tensor: Tensor) -> Tensor | None:
    """A tensor's ``.grad``. Fast weights (``functional_call``) are no leaves: torch warns of who asks them for one."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def gradients_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those that have one."""
    return [gradient for tensor in tensors if (gradient := gradient_of(tensor)) is not None]


def _members(module: nn.Module, kind: str) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name, part in named_parts_of(module):
        for key, member in _items(part, kind):
            if id(member) not in seen:
                seen.add(id(member))
                yield f"{name}.{key}" if name else key, member


def _items(module: nn.Module, kind: str) -> list[tuple[str, Any]]:
    """One of a module's three dictionaries, without what is None; a scripted module has wrappers in their place."""
    held: Mapping[str, Any] = module.__dict__.get(kind) or getattr(module, kind, {})
    return [(name, thing) for name, thing in held.items() if thing is not None]

"""An autograd graph read from one of its nodes upwards, without running unpack hooks or copying."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, final

import torch

from memguard.torch_objects.storages import storages_of

MAX_NODES = 4000
"""Nodes of one graph that are visited."""

SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "data")
"""Whether this torch shows what a graph saved; torch 2.4 does not."""
_RAW = "_raw_saved_"  # SavedTensor attributes of C++ nodes with .data and .unpack_hook; checked in torch 2.13


@final
class GraphToken:
    """Sits in the ``metadata`` of a node and dies with it: a weak reference to it tells when.

    Copied or pickled with the node it becomes None, so that no copy of the user's knows memguard.
    """

    __slots__ = ("__weakref__",)

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())


def graph_of(tensor: torch.Tensor) -> Any:
    """The node that made a tensor; of a view made under no_grad that of its base, which it keeps. None without one."""
    if tensor.grad_fn is None and tensor._base is not None:
        return tensor._base.grad_fn
    return tensor.grad_fn


def iter_nodes(
    starts: Iterable[Any],
    limit: int = MAX_NODES,
    *,
    known: Collection[Any] = (),
    ends: Callable[[Any], bool] | None = None,
) -> Iterator[Any]:
    """The nodes of graphs, from some nodes upstream, each once, breadth first. Holds the nodes until it ends.

    Args:
        starts: Where to begin; None among them is passed over.
        limit: Nodes after which it ends.
        known: Nodes that are not entered.
        ends: Tells whether a node is left out, with what is above it alone.
    """
    level = deque(node for node in starts if node is not None)
    seen = set(level)
    left = limit
    while level and left > 0:
        node = level.popleft()
        left -= 1
        yield node
        for upstream, _ in node.next_functions:
            if upstream is not None and upstream not in seen and upstream not in known:
                if ends is not None and ends(upstream):
                    continue
                seen.add(upstream)
                level.append(upstream)


def depth_of(node: Any, most: int, *, first: bool) -> int:
    """How many nodes a graph is deep along the first inputs, or the last; `most` where it is deeper."""
    for depth in range(most):
        inputs = node.next_functions if first else node.next_functions[::-1]
        node = next((upstream for upstream, _ in inputs if upstream is not None), None)
        if node is None:
            return depth
    return most


def leaves_of(starts: Iterable[Any], limit: int = MAX_NODES) -> Iterator[torch.Tensor]:
    """The leaves that want a gradient, where graphs end."""
    for node in iter_nodes(starts, limit):
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable


def leaf_storages(node: Any) -> dict[int, int]:
    """The storages of a plain leaf where a graph ends, and of its gradient. A weight is none: its module holds it."""
    variable = getattr(node, "variable", None)
    if type(variable) is not torch.Tensor or not variable.is_leaf:  # a subclass would run code of its own
        return {}
    return storages_of([variable] if type(variable.grad) is not torch.Tensor else [variable, variable.grad])


def raw_saved(node: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """What one node saved, without what a hook of the user's would unpack: torch's own wrapper, and the tensor."""
    for name in _saved_names(type(node)):
        try:
            raw = getattr(node, name)
        except (RuntimeError, AttributeError):
            continue  # freed by backward
        for saved in raw if isinstance(raw, (tuple, list)) else (raw,):
            if getattr(saved, "unpack_hook", None) is None:
                data = getattr(saved, "data", None)
                if isinstance(data, torch.Tensor):
                    yield saved, data


def saved_tensors(node: Any) -> Iterator[torch.Tensor]:
    """The tensors that one node saved, as they lie there."""
    return (data for _, data in raw_saved(node))


def saved_storages(node: Any, limit: int = MAX_NODES) -> dict[int, int]:
    """The storages that a graph saved for backward: key to bytes. What a checkpoint would recompute is not touched."""
    found: dict[int, int] = {}
    for current in iter_nodes((node,), limit):
        found.update(storages_of(saved_tensors(current)))
    return found


def held_bytes(tensor: torch.Tensor, ignore: dict[int, int]) -> dict[int, int]:
    """What keeping one tensor keeps: its own storage and all that its graph saved, without those to ignore."""
    found = storages_of([tensor])
    if (node := graph_of(tensor)) is not None:
        found.update(saved_storages(node))
    return {key: size for key, size in found.items() if key not in ignore}


_names_of: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""Weakly: the class of a function of the user's may hold tensors in its closure, as those of captured graphs do."""


def _saved_names(kind: type) -> tuple[str, ...]:
    names = _names_of.get(kind)
    if names is None:
        names = _names_of[kind] = tuple(name for name in dir(kind) if name.startswith(_RAW))
    return names

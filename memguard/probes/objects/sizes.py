"""How much an autograd graph or a set of tensors holds, by storage, without running unpack hooks or copying."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from memguard.errors import MemGuardError
from memguard.module_parts import buffers_of, parameters_of, parts_of

MAX_NODES = 4000
"""Nodes of one graph that are visited."""
MOST_OWNED = 100_000
"""Parameters and buffers that are told from other tensors: half a second of work. Large models have 20,000."""

SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "data")
"""Whether this torch shows what a graph saved; torch 2.4 does not."""
_RAW = "_raw_saved_"  # SavedTensor attributes of C++ nodes with .data and .unpack_hook; checked in torch 2.13


def storage_key(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What tells one storage from another while it lives, and its size in bytes; None where a tensor has none."""
    try:
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()
    except (NotImplementedError, RuntimeError, AttributeError):
        return None


def storages_of(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """The storages of some tensors: key to bytes, each once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        key = storage_key(tensor)
        if key is not None:
            found[key[0]] = key[1]
    return found


def walk(node: Any, limit: int = MAX_NODES) -> Iterator[Any]:
    """The nodes of a graph, from one node upstream, each once, breadth first, at most `limit`."""
    seen, level = {node}, [node]
    while level:
        following = []
        for current in level:
            yield current
            for upstream, _ in current.next_functions:
                if upstream is not None and upstream not in seen:
                    if len(seen) >= limit:
                        continue
                    seen.add(upstream)
                    following.append(upstream)
        level = following


def saved_storages(node: Any, limit: int = MAX_NODES) -> dict[int, int]:
    """The storages that a graph saved for backward: key to bytes. What a checkpoint would recompute is not touched."""
    found: dict[int, int] = {}
    for current in walk(node, limit):
        found.update(storages_of(saved_tensors(current)))
    return found


def saved_tensors(node: Any) -> Iterator[torch.Tensor]:
    """The tensors that one node saved, as they lie there."""
    for _, data in raw_saved(node):
        yield data


def leaf_storages(node: Any) -> dict[int, int]:
    """The storages of a plain leaf where a graph ends, and of its gradient. A weight is none: its module holds it."""
    variable = getattr(node, "variable", None)
    if type(variable) is not torch.Tensor or not variable.is_leaf:  # a subclass would run code of its own
        return {}
    return storages_of([variable] if type(variable.grad) is not torch.Tensor else [variable, variable.grad])


def raw_saved(node: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """What one node saved, without what a hook of the user's would unpack: torch's own wrapper, and the tensor."""
    kind: Any = type(node)
    for name in _saved_names(kind):
        try:
            raw = getattr(node, name)
        except (RuntimeError, AttributeError):
            continue  # freed by backward
        for saved in raw if isinstance(raw, (tuple, list)) else (raw,):
            if getattr(saved, "unpack_hook", None) is None:
                data = getattr(saved, "data", None)
                if isinstance(data, torch.Tensor):
                    yield saved, data


_names_of: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""Weakly: the class of a function of the user's may hold tensors in its closure, as those of captured graphs do."""


def _saved_names(kind: type) -> tuple[str, ...]:
    names = _names_of.get(kind)
    if names is None:
        names = _names_of[kind] = tuple(name for name in dir(kind) if name.startswith(_RAW))
    return names


def held_bytes(tensor: torch.Tensor, ignore: dict[int, int]) -> dict[int, int]:
    """What keeping one tensor keeps: its own storage and all that its graph saved, without those to ignore."""
    found = storages_of([tensor])
    if tensor.grad_fn is not None:
        found.update(saved_storages(tensor.grad_fn))
    return {key: size for key, size in found.items() if key not in ignore}


def owned_storages(models: Iterable[torch.nn.Module]) -> dict[int, int]:
    """The storages of all parameters and buffers of some models.

    Raises:
        MemGuardError: They have more than `MOST_OWNED`, and listing them would hold up the training.
    """
    models = list(models)
    count = sum(len(part._parameters) + len(part._buffers) for model in models for part in parts_of(model))
    if count > MOST_OWNED:
        raise MemGuardError(f"the models have {count:,} parameters and buffers, and it looks at {MOST_OWNED:,} at most")
    found: dict[int, int] = {}
    for model in models:
        found.update(storages_of(parameters_of(model)))
        found.update(storages_of(buffers_of(model)))
    return found

"""Storages of tensors: what tells one from another, what they take, and weak references to them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from memguard.errors import MemGuardError
from memguard.module_parts import buffers_of, parameters_of, parts_of

MOST_OWNED = 100_000
"""Parameters and buffers that are told from other tensors: half a second of work. Large models have 20,000."""


def storage_key(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What tells one storage from another while it lives, and its size in bytes; None where a tensor has none."""
    try:
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()
    except (NotImplementedError, RuntimeError, AttributeError):  # functorch, sparse, meta wrappers
        return None


def storages_of(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """The storages of some tensors: key to bytes, each once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        key = storage_key(tensor)
        if key is not None:
            found[key[0]] = key[1]
    return found


def owned_storages(models: Iterable[nn.Module]) -> dict[int, int]:
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


def users_of(tensor: torch.Tensor) -> int | None:
    """How many tensors have a tensor's storage, itself and those within graphs included; None where torch tells not."""
    users, alone = _count(tensor), _count(torch.empty(1, device="cpu"))
    return users - alone + 1 if users is not None and alone is not None else None


def _count(tensor: torch.Tensor) -> int | None:
    """References to a storage; how many a single tensor has depends on torch's version (checked in 2.4 and 2.13)."""
    count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
    return count(tensor.untyped_storage()._cdata) if count is not None else None


@final
class _ObjectRef:
    """Refers to the object in Python, of which there is one for as long as the storage lives."""

    __slots__ = ("_ref",)

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._ref = weakref.ref(storage)

    def expired(self) -> bool:
        """Whether the storage is gone."""
        return self._ref() is None


def _keeps_nothing(kind: Any) -> bool:
    """Whether a storage's object goes in time under a weak reference; in torch 2.4 it waits for the reference to go.

    The virtual GPU counts a storage for as long as that object lives.
    """
    tensor = torch.empty(1, device="cpu")
    ref, watched = kind(tensor.untyped_storage()), weakref.ref(tensor.untyped_storage())
    del tensor
    return ref.expired() and watched() is None


StorageRef: Any = StorageWeakRef if _keeps_nothing(StorageWeakRef) else _ObjectRef
"""Made from a storage; tells whether it `expired()`."""

"""Weak references to storages, under which a storage's object in Python goes when the storage goes."""

from __future__ import annotations

import weakref
from typing import Any, final

import torch
from torch.multiprocessing.reductions import StorageWeakRef


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

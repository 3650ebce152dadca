"""Tensor storages: identity, size, and weak references."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from types import MemberDescriptorType
from typing import Any, final

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from memguard.errors import MemGuardError
from memguard.torch_objects.module_parts import buffers_of, parameters_of, parts_of

MOST_OWNED = 100_000
"""Parameters and buffers that are told from other tensors: half a second of work. Large models have 20,000."""


unheard: Any = torch._C.DisableTorchFunction  # private; checked in torch 2.13
"""A context in which no ``__torch_function__``, of a class or of a mode, hears what is read of a tensor."""

untyped_storage = torch._C.TensorBase.untyped_storage
"""Reads a tensor's storage, whatever its class has under that name."""
_WAITING: type = nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__
_SPARSE_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: ("_values", "_indices"),
    torch.sparse_csr: ("values", "crow_indices", "col_indices"),
    torch.sparse_csc: ("values", "ccol_indices", "row_indices"),
    torch.sparse_bsr: ("values", "crow_indices", "col_indices"),
    torch.sparse_bsc: ("values", "ccol_indices", "row_indices"),
}
_undispatched: Any = getattr(torch._C, "_DisableTorchDispatch", contextlib.nullcontext)  # checked in torch 2.13
_below_autograd: Any = getattr(torch._C, "_AutoDispatchBelowAutograd", torch.no_grad)  # checked in torch 2.13


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The storage that a tensor has in memory.

    None where it has none that tells its size: a sparse or nested tensor, a wrapper of functorch or of the user's, one
    on the meta device, a fake one, a parameter that waits for its shape. Of a DTensor it is that of its local part.
    To be asked `unheard`.
    """
    kind = type(tensor)
    is_plain = kind is torch.Tensor or kind is nn.Parameter
    try:
        if tensor.is_nested or (is_plain and tensor.is_meta):
            return None
        storage = untyped_storage(tensor)
    except (NotImplementedError, RuntimeError, AttributeError):
        return None
    if is_plain:
        return storage
    if issubclass(kind, _WAITING) or storage.device.type == "meta":
        return None
    if not dispatches_itself(kind) or _has_memory(storage):
        return storage
    local = getattr(kind, "_local_tensor", None)  # a slot of DTensor; private, checked in torch 2.13
    return storage_of(local.__get__(tensor)) if type(local) is MemberDescriptorType else None


def dispatches_itself(kind: type) -> bool:
    """Whether a class of tensors brings its own ``__torch_dispatch__``, as wrappers of other tensors do."""
    return kind.__torch_dispatch__ is not _PLAIN_DISPATCH  # type: ignore[attr-defined]


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether a tensor is this rank's part of a larger one, whose shape it has (a DTensor)."""
    return type(getattr(type(tensor), "_local_tensor", None)) is MemberDescriptorType  # as above


def _has_memory(storage: torch.UntypedStorage) -> bool:
    """Whether a storage lies anywhere; that of a wrapper does not."""
    try:
        return storage.data_ptr() != 0
    except RuntimeError:
        return False


def sparse_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that a sparse one is made of, its values first; no mode of the user's hears of it. Else none."""
    names = _SPARSE_PARTS.get(tensor.layout, ())
    if not names or dispatches_itself(type(tensor)):
        return []
    with _undispatched(), _below_autograd():
        return [getattr(tensor, name)() for name in names]


def main_storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """A tensor's storage as `storage_of` has it; of a sparse one that of its values."""
    storage = storage_of(tensor)
    return storage if storage is not None else next(map(storage_of, sparse_parts(tensor)), None)


def storage_key(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What tells one storage from another while it lives, and its size in bytes; None where a tensor has none.

    A sparse tensor goes by the storage of its values, and is as large as they and the indices together.
    """
    storage = storage_of(tensor)
    if storage is not None:
        return storage._cdata, storage.nbytes()
    parts = [part for one in sparse_parts(tensor) if (part := storage_of(one)) is not None]
    return (parts[0]._cdata, sum(part.nbytes() for part in parts)) if parts else None


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
        raise MemGuardError(f"the models have {count:,} parameters and buffers; it reads {MOST_OWNED:,} at most")
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
    storage = main_storage(tensor)
    return count(storage._cdata) if count is not None and storage is not None else None


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

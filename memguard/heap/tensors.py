"""Which objects are tensors that may be read: asked by their class alone, so that no code of the user's runs.

A tensor's storage is then read by `memguard.torch_objects.storages`, and all of it `unheard`.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeGuard

import torch
from torch import nn

from memguard.heap.attributes import is_user_class, mro_of, namespace_of
from memguard.torch_objects.storages import storage_of

# fmt: off
_ASKED = frozenset({
    "__getattribute__", "__torch_dispatch__", "_base", "_version", "data_ptr", "device", "dtype", "element_size",
    "grad", "grad_fn", "is_inference", "is_leaf", "is_meta", "is_nested", "is_shared", "layout", "nbytes", "numel",
    "requires_grad", "shape", "storage_offset", "untyped_storage",
})
# fmt: on
"""What memguard asks of a tensor, and what could answer in its place."""
_known: dict[int, tuple[weakref.ref[type], bool]] = {}
"""Answers for classes, by their ids: to hash a class may run the user's code."""


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether an object is a tensor that can be read without running any code of the user's."""
    kind = type(value)
    return kind is torch.Tensor or is_tensor_class(kind)


def is_stored(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is such a tensor, and has a storage in memory: shape, offset and storage can be asked for."""
    return is_tensor(value) and storage_of(value) is not None


def is_tensor_class(kind: type) -> bool:
    """Whether objects of a class are tensors that can be read so.

    Those of a user's class that answers itself count as plain objects, with what lies in their attributes.
    """
    if kind is torch.Tensor or kind is nn.Parameter:
        return True
    if not issubclass(kind, torch.Tensor):
        return False
    known = _known.get(id(kind))
    if known is not None and known[0]() is kind:
        return known[1]
    found = not any(_answers(base) for base in mro_of(kind))
    _known[id(kind)] = weakref.ref(kind), found
    return found


def _answers(base: type) -> bool:
    names: Any = namespace_of(base)
    return not _ASKED.isdisjoint(names) and is_user_class(base)

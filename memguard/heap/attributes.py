"""The attributes of an object and of a class, and which objects are tensors: asked without running the user's code.

Read past metaclasses, properties and ``__getattr__``. A tensor's storage is then read by
`memguard.torch_objects.storages`, and all of it `unheard`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import torch
from torch import nn

from memguard.heap.frames import is_user_module
from memguard.torch_objects.storages import storage_of

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def mro_of(cls: type) -> tuple[type, ...]:
    """The classes a class inherits from, itself first, read past any metaclass."""
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return found


def namespace_of(cls: type) -> Mapping[str, Any]:
    """The attributes of a class itself, read past any metaclass."""
    found: Mapping[str, Any] = type.__dict__["__dict__"].__get__(cls)
    return found


def attributes_of(obj: object) -> dict[str, Any]:
    """The instance attributes of an object: its `__dict__`, or an empty dict; never one that a property made up."""
    if type(obj) is threading.local:  # keeps a dict for each thread and has no descriptor for it
        return dict(threading.local.__getattribute__(obj, "__dict__"))
    for base in mro_of(type(obj)):
        slot = namespace_of(base).get("__dict__")
        kind: type = type(slot)
        if kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType:
            found = slot.__get__(obj)  # type: ignore[union-attr]
            return found if type(found) is dict else {}
    return {}


def is_user_class(cls: type) -> bool:
    """Whether a class was written by the user."""
    name = namespace_of(cls).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    if module is None or not issubclass(type(module), types.ModuleType):
        return False
    filename = attributes_of(module).get("__file__")
    return is_user_module(str(name), filename if type(filename) is str else None)


def file_of(cls: type) -> str | None:
    """The file of a class's module, as that says."""
    name = namespace_of(cls).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    filename = attributes_of(module).get("__file__") if module is not None else None
    return filename if type(filename) is str else None


def fields_of(obj: object) -> dict[str, Any]:
    """The instance attributes of an object, those in ``__slots__`` too."""
    slots = slots_of(type(obj))
    return {**attributes_of(obj), **filled_slots(obj, slots)} if slots else attributes_of(obj)


def filled_slots(obj: object, slots: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """What was put into the slots of an object, by name."""
    found = {}
    for name, slot in slots:
        with contextlib.suppress(AttributeError):  # nothing was
            found[name] = slot.__get__(obj)
    return found


def slots_of(kind: type) -> list[tuple[str, Any]]:
    """The ``__slots__`` of a type and of the classes it extends, by name."""
    known = _slots.get(id(kind))
    if known is None or known[0]() is not kind:
        known = _slots[id(kind)] = weakref.ref(kind), _places_of_slots(kind)
    if not known[1]:
        return []
    bases = mro_of(kind)
    return [(name, namespace_of(bases[at])[name]) for at, name in known[1] if name in namespace_of(bases[at])]


def _places_of_slots(kind: type) -> list[tuple[int, str]]:
    return [
        (at, name)
        for at, base in enumerate(mro_of(kind))
        if type.__dict__["__flags__"].__get__(base) & HEAP_TYPE
        for name, slot in list(namespace_of(base).items())
        if type(slot) is types.MemberDescriptorType and name not in ("__dict__", "__weakref__")
    ]


def is_numpy_array(kind: type) -> bool:
    """Whether it is numpy's own array, told without numpy."""
    if type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE:
        return False
    module, name = type.__dict__["__module__"].__get__(kind), type.__dict__["__name__"].__get__(kind)
    return bool(module == "numpy" and name == "ndarray")


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
_slots: dict[int, tuple[weakref.ref[type], list[tuple[int, str]]]] = {}
"""Slots of classes, by their ids: which base has them, and their names; a descriptor would keep its class alive."""


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

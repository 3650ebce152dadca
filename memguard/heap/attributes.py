"""The attributes of an object and of a class, read past metaclasses, properties and ``__getattr__``."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Mapping
from typing import Any

from memguard.heap.frames import is_user_module

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


def slots_of(kind: type) -> list[tuple[str, Any]]:
    """The ``__slots__`` of a type and of the classes it extends, by name."""
    return [
        (name, slot)
        for base in mro_of(kind)
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

"""The attributes of an object and of a class, read past metaclasses, properties and ``__getattr__``."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Mapping
from typing import Any

from memguard.probes.objects.frames import is_user_module


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

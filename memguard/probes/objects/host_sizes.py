"""What an object takes of the host's memory: estimated from built-in containers, arrays and tensors, bounded.

Asks built-in types for their own sizes and never a method of the user's; an object of a C library without a size that
can be read this way counts as its Python part alone.
"""

from __future__ import annotations

import collections
import enum
import io
import sys
import types
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch

from memguard.probes.objects.sizes import storage_key

MAX_OBJECTS = 5_000
"""Objects that are looked at for one estimate."""
SAMPLE = 32
"""Elements of a container that stand for all of them; half as many at each level below."""
MAX_DEPTH, MAX_COUNT_DEPTH = 5, 12

LATEST = 4
"""Elements at the end of a container that are looked at: a log may get a number between two tensors."""

MIN_TEXT = 64 * 1024
"""Characters of a text that may be one to which every batch adds."""

_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, collections.deque)
_PLAIN = (bytes, bytearray, str, int, float, complex, io.BytesIO)
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def size_of(value: object) -> int:
    """Bytes that an object keeps in host memory, with what hangs below it; each object counts once."""
    return _Estimate().of(value, MAX_DEPTH)


def objects_of(value: object) -> int:
    """About how many Python objects an object leads to, itself included; too few rather than too many."""
    return _Objects().of(value, 0)


def is_unknown(value: object) -> bool:
    """Whether a part of it belongs to a C library that does not tell its size: a picture, a handle."""
    estimate = _Estimate()
    estimate.of(value, MAX_DEPTH)
    return estimate.unknown


def newest_of(container: object) -> object:
    """What was added to a container last; None where its order does not tell."""
    return next(iter(latest_of(container)), None)


def latest_of(container: object) -> tuple[object, ...]:
    """The last few that were added to a container, the newest first; none where its order does not tell."""
    kind = type(container)
    elements: Iterable[object] = ()
    if issubclass(kind, list):
        elements = list.__reversed__(container)  # type: ignore[arg-type]
    elif issubclass(kind, tuple):
        elements = reversed(tuple.__getitem__(container, slice(-LATEST, None)))  # type: ignore[call-overload]
    elif issubclass(kind, collections.deque):
        elements = collections.deque.__reversed__(container)  # type: ignore[arg-type]
    elif issubclass(kind, dict):
        elements = reversed(dict.values(container))  # type: ignore[arg-type]
    return tuple(islice(elements, LATEST))


def block_of(value: object) -> int:
    """Bytes of an object that is one block of memory and can be replaced by a larger one: an array, a text; else 0."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray or kind is io.BytesIO:  # by identity: a metaclass may hash
        return sys.getsizeof(value)
    return int(kind.nbytes.__get__(value)) if _is_array(kind) else 0  # type: ignore[attr-defined]


def _is_array(kind: type) -> bool:
    """Whether it is numpy's own array, told without numpy."""
    if type.__dict__["__flags__"].__get__(kind) & _HEAP_TYPE:
        return False  # made by a class statement
    module, name = type.__dict__["__module__"].__get__(kind), type.__dict__["__name__"].__get__(kind)
    return bool(module == "numpy" and name == "ndarray")


def _below(value: object) -> object:
    """What an array's memory belongs to, if it is not its own."""
    kind = type(value)
    return kind.base.__get__(value) if _is_array(kind) else None  # type: ignore[attr-defined]


def is_large_text(value: object) -> bool:
    """Whether it is a text so long that it may be one to which every batch adds."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value) >= MIN_TEXT  # type: ignore[arg-type]
    return False


def is_from_worker(value: object, depth: int = 3) -> bool:
    """Whether a tensor in it lies in shared memory, as those that DataLoader workers hand over."""
    if type(value) is torch.Tensor:
        return value.device.type == "cpu" and value.is_shared()
    if depth == 0:
        return False
    if (below := _below(value)) is not None:
        return is_from_worker(below, depth - 1)  # tensor.numpy() keeps the tensor
    return any(is_from_worker(child, depth - 1) for child in islice(_children(value), 8))


def _children(value: object) -> Any:
    kind = type(value)
    if issubclass(kind, dict):
        return dict.values(value)  # type: ignore[arg-type]
    for base in _CONTAINERS[1:3]:
        if issubclass(kind, base):
            return base.__iter__(value)
    return ()


class _Estimate:
    """One estimate; knows what it has counted."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._left = MAX_OBJECTS
        self.unknown = False

    def of(self, value: object, depth: int) -> int:
        kind = type(value)
        if value is None or kind is bool or id(value) in self._seen or self._left <= 0:
            return 0
        self._left -= 1
        self._seen.add(id(value))
        if issubclass(kind, torch.Tensor):
            key = storage_key(value) if isinstance(value, torch.Tensor) and value.device.type == "cpu" else None
            if key is None or key[0] in self._seen:
                return 0
            self._seen.add(key[0])
            return key[1]
        if kind.__module__ == "numpy" and kind.__name__ in ("ndarray", "memmap"):
            return 0 if kind.__name__ == "memmap" else int(kind.nbytes.__get__(value))  # type: ignore[attr-defined]
        if issubclass(kind, (*_NAMED, enum.Enum)):
            return 0  # made once, whoever refers to it
        if kind is int and -5 <= value <= 256:  # type: ignore[operator]
            return 0  # of these there is one for all
        if kind in _PLAIN:
            return sys.getsizeof(value)
        if depth == 0:
            return 0
        if issubclass(kind, dict):
            return self._container(value, dict.__len__(value), dict.items(value), depth)  # type: ignore[arg-type]
        for base in _CONTAINERS[1:]:
            if issubclass(kind, base):
                return self._container(value, base.__len__(value), base.__iter__(value), depth)
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            self.unknown |= kind.__module__ not in ("numpy", "torch")
            return 0
        return self.of(attributes, depth - 1) if type(attributes) is dict else 0

    def _container(self, value: object, length: int, elements: Iterable[Any], depth: int) -> int:
        sample = list(islice(elements, max(SAMPLE >> (MAX_DEPTH - depth), 4)))
        below = sum(self.of(part, depth - 1) for part in sample)
        return _own(value) + (below * length // len(sample) if sample else 0)


class _Objects:
    """One count, from a few elements of each container."""

    def __init__(self) -> None:
        self._left = MAX_OBJECTS

    def of(self, value: object, depth: int) -> int:
        kind = type(value)
        if value is None or kind is bool or self._left <= 0 or depth > MAX_COUNT_DEPTH:
            return 0
        self._left -= 1
        for base in _CONTAINERS:
            if issubclass(kind, base):
                elements = dict.values(value) if base is dict else base.__iter__(value)  # type: ignore[arg-type]
                sample = list(islice(elements, 4 if depth == 0 else 2))
                below = sum(self.of(part, depth + 1) for part in sample)
                return 1 + (below * base.__len__(value) // len(sample) if sample else 0)
        if kind in _PLAIN or issubclass(kind, (*_NAMED, enum.Enum, torch.Tensor)):
            return 1
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:  # it has slots, or is C's
            return 1
        parts = islice(dict.values(attributes), 16) if type(attributes) is dict else ()
        return 1 + sum(self.of(part, depth + 1) for part in parts)


def _own(value: object) -> int:
    for base in _CONTAINERS:
        if issubclass(type(value), base):
            return int(base.__sizeof__(value))
    return 0

"""What an object takes of the host's memory: estimated from built-in containers, arrays and tensors, bounded.

Asks built-in types for their own sizes and never a method of the user's; an object of a C library without a size that
can be read this way counts as its Python part alone.
"""

from __future__ import annotations

import enum
import io
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

import torch

from memguard.heap.attributes import attributes_of, fields_of, is_numpy_array, is_tensor_class
from memguard.heap.containers import CONTAINERS, elements_of
from memguard.torch_objects.storages import storage_key, storage_of

MAX_OBJECTS = 5_000
"""Objects that are looked at for one estimate."""
SAMPLE, LEAST_SAMPLE = 32, 4
"""Elements of a container that stand for all of them; half as many at each level below, but so many at least."""
MAX_DEPTH = 12
MIN_TEXT = 64 * 1024
"""Characters of a text that may be one to which every batch adds."""

OF_VIEW = 3
"""References to an array that a view alone keeps, while it is counted: the view's, a variable's, the question's."""

_PLAIN = (bytes, bytearray, str, int, float, complex, io.BytesIO)
_KNOWN = ("numpy", "torch")
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, enum.Enum)


@final
@dataclass(slots=True)
class HostSize:
    """What an object keeps in host memory, with what hangs below it; each object counts once."""

    bytes: int = 0
    objects: int = 0
    """About how many Python objects it leads to, itself included."""
    unknown: bool = False
    """Whether a part of it belongs to a C library that does not tell its size: a picture, a handle."""


def host_size(value: object, *, beside: object = None) -> HostSize:
    """Estimates an object: long containers by a sample of their elements.

    Args:
        value: The object.
        beside: Another one; what both lead to is not counted.
    """
    estimate = _Estimate()
    estimate.of(beside, 0, MAX_OBJECTS)
    return estimate.of(value, 0, MAX_OBJECTS)


def size_of(value: object) -> int:
    """Bytes that an object keeps in host memory, with what hangs below it."""
    return host_size(value).bytes


def block_of(value: object) -> int:
    """Bytes of an object that is one block of memory and can be replaced by a larger one: an array, a text; else 0."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray or kind is io.BytesIO:  # by identity: a metaclass may hash
        return sys.getsizeof(value)
    return int(kind.nbytes.__get__(value)) if is_numpy_array(kind) else 0  # type: ignore[attr-defined]


def is_large_text(value: object) -> bool:
    """Whether it is a text so long that it may be one to which every batch adds."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value) >= MIN_TEXT  # type: ignore[arg-type]
    return False


def is_from_worker(value: object, depth: int = 3) -> bool:
    """Whether a tensor in it lies in shared memory, as those that DataLoader workers hand over."""
    kind = type(value)
    if kind is torch.Tensor:
        storage = storage_of(value)  # type: ignore[arg-type]
        return storage is not None and storage.device.type == "cpu" and storage.is_shared()
    if depth == 0:
        return False
    if is_numpy_array(kind):  # tensor.numpy() keeps the tensor
        return is_from_worker(kind.base.__get__(value), depth - 1)  # type: ignore[attr-defined]
    return any(is_from_worker(child, depth - 1) for child in islice(elements_of(value), 8))


class _Estimate:
    """One estimate; knows what it has counted."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._looked_at = 0

    def of(self, value: Any, depth: int, left: int) -> HostSize:
        """Of an object so many levels down, by a look at so many objects at most."""
        kind = type(value)
        if value is None or kind is bool or left <= 0 or depth > MAX_DEPTH or id(value) in self._seen:
            return HostSize()
        self._looked_at += 1
        self._seen.add(id(value))
        if issubclass(kind, torch.Tensor):
            key = storage_key(value) if is_tensor_class(kind) and value.device.type == "cpu" else None
            if key is None or key[0] in self._seen:
                return HostSize(objects=1)
            self._seen.add(key[0])
            return HostSize(key[1], 1)
        if is_numpy_array(kind):
            return HostSize(self._memory_of(value), 1)
        if issubclass(kind, _NAMED):  # made once, whoever refers to it
            return HostSize(objects=1)
        if any(kind is plain for plain in _PLAIN):
            is_shared = kind is int and -5 <= value <= 256  # of these there is one for all
            return HostSize(0 if is_shared else sys.getsizeof(value), 1)
        for base in CONTAINERS:
            if issubclass(kind, base):
                size, length = int(base.__sizeof__(value)), int(base.__len__(value))  # type: ignore[attr-defined,call-arg]
                parts = dict.items(value) if base is dict else ((part,) for part in base.__iter__(value))  # type: ignore[attr-defined]
                return self._with_parts(HostSize(size, 1), length, parts, depth, left)
        attributes, fields = attributes_of(value), fields_of(value)
        module = type.__dict__["__module__"].__get__(kind)
        found = HostSize(dict.__sizeof__(attributes) if attributes else 0, 1, not fields and module not in _KNOWN)
        values = ((part,) for part in list(fields.values()))
        return self._with_parts(found, len(fields), values, depth, left)

    def _memory_of(self, array: Any) -> int:
        """Bytes that an array keeps: of a view those of the array that it shows a part of, if nothing else keeps it."""
        base = array.base
        if not is_numpy_array(type(base)):
            return block_of(array)
        if id(base) in self._seen:
            return 0
        self._seen.add(id(base))
        return block_of(base if sys.getrefcount(base) <= OF_VIEW else array)

    def _with_parts(
        self, found: HostSize, length: int, parts: Iterable[tuple[Any, ...]], depth: int, left: int
    ) -> HostSize:
        """Adds what lies below, from a sample: each part has its share of the looks that those before have left."""
        sample = list(islice(parts, max(SAMPLE >> depth, LEAST_SAMPLE)))
        end = self._looked_at + left - 1
        nbytes = objects = 0
        for number, part in enumerate(sample):
            share = (end - self._looked_at) // (len(part) * (len(sample) - number))
            for value in part:
                below = self.of(value, depth + 1, share)
                nbytes, objects = nbytes + below.bytes, objects + below.objects
                found.unknown = found.unknown or below.unknown
        if sample:
            found.bytes += nbytes * length // len(sample)
            found.objects += objects * length // len(sample)
        return found

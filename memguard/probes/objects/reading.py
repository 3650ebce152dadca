"""Reads what an object holds, by its type."""

from __future__ import annotations

import contextvars
import functools
import gc
import types
from collections.abc import Callable, Iterable
from typing import Any, final

from memguard.probes.objects.elements import CONTAINERS, SAMPLE, container_of, is_atom
from memguard.probes.objects.functions import of_cell, of_function, of_partial
from memguard.probes.objects.held import Held, Scope, Via
from memguard.probes.objects.instances import (
    HEAP_TYPE,
    of_array,
    of_class,
    of_container,
    of_container_and_attributes,
    of_instance,
    slots_of,
)
from memguard.probes.objects.running import (
    GENERATORS,
    of_context_variable,
    of_exception,
    of_generator,
    of_scope,
    of_traceback,
)

_OPAQUE_MODULES = ("itertools", "builtins", "functools", "collections", "_collections", "_functools", "_queue")
_LRU_CACHE = type(functools.lru_cache(lambda: None))


def _is_one_of(kind: type, kinds: Iterable[type]) -> bool:
    """Whether a type is one of some; by identity, for `in` compares with `==`, which a metaclass may define."""
    return any(kind is other for other in kinds)


@final
class Contents:
    """Reads what objects hold; remembers for each type how to read it. Lives as long as one walk.

    Args:
        running: Frames that are roots of the walk already; an exception's traceback leads past them.
    """

    def __init__(self, running: Iterable[types.FrameType] = ()) -> None:
        self._readers: dict[int, Callable[[Any], Iterable[Held]] | None] = {}
        self._kinds: list[type] = []  # keeps their ids valid
        self._running = frozenset(map(id, running))

    def __call__(self, obj: Any) -> Iterable[Held]:
        """Everything an object holds that may lead to a tensor."""
        kind = type(obj)
        try:
            read = self._readers[id(kind)]
        except KeyError:
            read = self._readers[id(kind)] = self._reader(kind)
            self._kinds.append(kind)
        return read(obj) if read is not None else ()

    def is_empty(self, kind: type) -> bool:
        """Whether objects of a type are known to hold nothing."""
        return self._readers.get(id(kind), self) is None

    def _reader(self, kind: type) -> Callable[[Any], Iterable[Held]] | None:
        if is_atom(kind):
            return None
        if kind is Scope:
            return of_scope
        if _is_ours(kind):
            return None
        if container_of(kind) is not None:
            return of_container if _is_one_of(kind, CONTAINERS) else of_container_and_attributes
        if kind is types.FunctionType:
            return of_function
        if kind is types.MethodType:
            return lambda method: ((Via.PART, None, method.__self__), (Via.PART, None, method.__func__))
        if kind is types.CellType:
            return of_cell
        if _is_one_of(kind, GENERATORS):
            return of_generator
        if kind is contextvars.ContextVar:
            return of_context_variable
        if kind is types.TracebackType:
            running = self._running
            return lambda trace: of_traceback(trace, running)
        if issubclass(kind, BaseException):
            return of_exception
        if issubclass(kind, type):
            return of_class
        if issubclass(kind, functools.partial):
            return of_partial
        if kind is property:
            return lambda prop: ((Via.PART, None, prop.fget),)
        if _is_one_of(kind, (staticmethod, classmethod)):
            return lambda method: ((Via.PART, None, method.__func__),)
        heap = type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE
        if (
            type.__dict__["__module__"].__get__(kind) == "numpy"
            and type.__dict__["__name__"].__get__(kind) == "ndarray"
        ):
            return of_array
        if kind is _LRU_CACHE or (not heap and type.__dict__["__module__"].__get__(kind) in _OPAQUE_MODULES):
            return lambda obj: [(Via.PART, None, part) for part in gc.get_referents(obj)[:SAMPLE]]
        slots = slots_of(kind)
        return (lambda obj: of_instance(obj, slots)) if slots else of_instance


def _is_ours(kind: type) -> bool:
    """Whether a class is memguard's: its objects hold nothing of the user's, and are many."""
    module = type.__dict__["__module__"].__get__(kind)
    return type(module) is str and module.startswith("memguard.")

"""What each DataLoader worker ends up with: copies of a dataset's Python objects, caches that its methods fill."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any, final

from memguard.evidence.host.datasets import have_workers, place_of_attribute, readings, unbounded_caches, unwrap
from memguard.evidence.interface import Probe
from memguard.heap.attributes import is_user_class
from memguard.heap.containers import container_of, length_of
from memguard.heap.host_sizes import host_size
from memguard.records.facts import Place, WorkerObjects
from memguard.records.stats import Stage
from memguard.source.bounds import NO_CACHE, bounds_of
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext
from memguard.source.search import find_statement

MAX_DEPTH = 3
"""Calls from a dataset's method to the function that fills a cache."""
MAX_FUNCTIONS = 64


def module_caches(dataset: Any) -> Iterator[Place]:
    """Where a dataset's methods, or functions that they call, add to a container of the module.

    Functions there that remember every answer (``functools.cache``) count as well.
    """
    functions: dict[int, types.FunctionType] = {}
    for kind in type(dataset).__mro__[:-1]:
        for value in vars(kind).values():
            function = getattr(value, "__func__", value)
            if type(function) is types.FunctionType and function.__name__ != "__init__":
                yield from _reached_functions(function, functions, 0)
    names = {function.__qualname__ for function in functions.values()}
    sources, seen = Sources(), set()
    for function in list(functions.values()):
        file, variables = function.__code__.co_filename, function.__globals__
        for name in _names_in(function.__code__):
            value = variables.get(name)
            if container_of(type(value)) is None or (file, name) in seen:
                continue
            seen.add((file, name))
            query = NameQuery(name=name, file=file, kinds=("set" if issubclass(type(value), set) else "list", "tensor"))
            statement = find_statement(query, [file], sources, SearchContext(graph=False, numbers=True))
            if statement is None or not statement.grows or statement.function not in names:
                continue
            if not bounds_of(statement.file, statement.line, f"module.{name}") & NO_CACHE:
                yield statement.place(name)


def _reached_functions(
    function: types.FunctionType, functions: dict[int, types.FunctionType], depth: int
) -> Iterator[Place]:
    """Enters a function and those that it calls by their names; tells those that remember every answer."""
    if id(function) in functions or len(functions) >= MAX_FUNCTIONS:
        return
    functions[id(function)] = function
    for name in _names_in(function.__code__) if depth < MAX_DEPTH else ():
        called: Any = function.__globals__.get(name)
        if type(called) is functools._lru_cache_wrapper:
            maxsize = called.cache_info().maxsize
            called = called.__wrapped__
            code = getattr(called, "__code__", None)
            if maxsize is None and code is not None:
                yield Place(file=code.co_filename, line=code.co_firstlineno, function=name, holder=name)
        if type(called) is types.FunctionType and called.__module__ == function.__module__:
            yield from _reached_functions(called, functions, depth + 1)


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function reads, and those in it read."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _names_in(constant)


LOOK = 4
"""The batch after which the datasets are looked at."""
WITHOUT = 64
"""Batches without workers, after which only another stage makes it look again."""
MIN_ELEMENTS = 5_000
MIN_OBJECTS, OBJECT_BYTES = 100_000, 48
"""Objects below a shorter container, such as trees or records, and what the smallest of them take."""
MIN_BYTES = 1024**2
_CONTAINERS: tuple[type, ...] = (list, dict, tuple, set, collections.deque)


@final
class WorkersProbe(Probe):
    """Looks once at the datasets that workers read."""

    def _prepare(self) -> None:
        self._batches = self._without = 0

    def on_stage_start(self, stage: Stage) -> None:
        """Its loader may have workers."""
        self._without = 0
        if self._batches < LOOK:
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks when the first workers are at work."""
        if not have_workers():
            self._without += 1
            if self._without >= WITHOUT:
                self.unsubscribe("on_batch_end")
            return
        self._batches += 1
        if self._batches < LOOK:
            return
        self.unsubscribe("on_batch_end")
        for reading in readings():
            for dataset in unwrap(reading.dataset) if reading.workers else ():
                self._look(dataset, reading.workers)

    def _look(self, dataset: Any, workers: int) -> None:
        held: dict[str, Any] = {}
        for kind in reversed(type(dataset).__mro__[:-1]):  # what stands on the class is kept for the whole process
            held.update(vars(kind) if is_user_class(kind) else ())
        held.update(vars(dataset))
        for name, value in held.items():
            if name.startswith("__") or not issubclass(type(value), _CONTAINERS):
                continue
            place, grows = place_of_attribute(dataset, name, "set" if issubclass(type(value), set) else "list")
            if grows and not bounds_of(place.file, place.line, f"self.{name}") & NO_CACHE:
                self._tell(place, workers, 0, 0, grows=True)
            else:
                self._weigh(value, place, workers)
        for place in (*unbounded_caches(dataset), *module_caches(dataset)):
            self._tell(place, workers, 0, 0, grows=True)

    def _weigh(self, value: Any, place: Place, workers: int) -> None:
        """Tells of many objects: elements, or what hangs below a few."""
        length, size = length_of(value), host_size(value)
        nbytes = size.bytes
        if length < MIN_ELEMENTS:
            length = size.objects
            nbytes = max(nbytes, length * OBJECT_BYTES)
            if length < MIN_OBJECTS:
                return
        if nbytes >= MIN_BYTES:
            self._tell(place, workers, length, nbytes, grows=False)

    def _tell(self, place: Any, workers: int, elements: int, nbytes: int, *, grows: bool) -> None:
        self.report(
            WorkerObjects(**self.watch.now, place=place, workers=workers, elements=elements, bytes=nbytes, grows=grows)
        )

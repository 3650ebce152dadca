"""Caches that stand in a module and are filled by what a dataset's methods call: each worker fills its own."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from memguard.facts import Place
from memguard.heap.containers import container_of
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
                yield from _reached(function, functions, 0)
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
                yield Place(
                    file=statement.file,
                    line=statement.line,
                    function=statement.function,
                    holder=name,
                    source=statement.source,
                )


def _reached(function: types.FunctionType, functions: dict[int, types.FunctionType], depth: int) -> Iterator[Place]:
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
            yield from _reached(called, functions, depth + 1)


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function reads, and those in it read."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _names_in(constant)

"""What a DataLoader's worker runs to fetch a sample, and the objects and variables that this may fill.

Nothing of the program is run: methods and functions are followed by the names in their code.
"""

from __future__ import annotations

import functools
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, final

from memguard.heap.attributes import attributes_of, fields_of, is_user_class, mro_of, namespace_of
from memguard.heap.containers import container_of
from memguard.heap.frames import is_user_module
from memguard.records.facts import Place

ENTRIES = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__")
"""Methods that a loader calls, or that are called without a name."""
MAX_OBJECTS, MAX_FUNCTIONS, MAX_INNER = 32, 256, 16
_WRAPPED = ("dataset", "datasets", "data_source")


def unwrap(dataset: Any) -> list[Any]:
    """A dataset and those that it wraps, and objects of the user's classes that these hold, such as transforms."""
    found: list[Any] = []
    waiting = [dataset]
    while waiting and len(found) < MAX_OBJECTS:
        one = waiting.pop(0)
        if any(one is other for other in found):
            continue
        found.append(one)
        for name, value in list(fields_of(one).items()):
            inner = value[:MAX_INNER] if type(value) in (list, tuple) else [value]
            waiting += [part for part in inner if name in _WRAPPED or is_user_class(type(part))]
    return found


@final
class Fetching:
    """What fetching a sample of one dataset runs.

    Args:
        dataset: The dataset. It is held, with all that it reaches: drop this object at once.

    Attributes:
        objects: Those whose attributes it may fill.
        functions: The qualified names of the functions and methods that it runs.
        variables: Containers of a module that they name, by its file and their name.
        remembered: Functions that remember every answer (``lru_cache(maxsize=None)``, ``functools.cache``).
    """

    def __init__(self, dataset: Any) -> None:
        self.objects: list[Any] = []
        self.functions: set[str] = set()
        self.variables: dict[tuple[str, str], Any] = {}
        self.remembered: list[Place] = []
        self._methods: defaultdict[str, list[Any]] = defaultdict(list)
        self._names = set(ENTRIES)
        self._waiting: list[Any] = []
        self._seen: list[Any] = []
        self._enter_objects(dataset)
        while self._waiting and len(self._seen) < MAX_FUNCTIONS:
            self._enter(self._waiting.pop())

    def _enter_objects(self, one: Any) -> None:
        new = [part for part in unwrap(one) if not any(part is other for other in self.objects)]
        self.objects += new[: MAX_OBJECTS - len(self.objects)]
        for kind in {id(kind): kind for part in new for kind in mro_of(type(part)) if is_user_class(kind)}.values():
            for name, value in list(namespace_of(kind).items()):
                method = value.fget if type(value) is property else value
                method = value.__func__ if type(value) in (classmethod, staticmethod) else method
                self._methods[name].append(method)
                if name in self._names:
                    self._waiting.append(method)

    def _enter(self, function: Any) -> None:
        if any(function is other for other in self._seen):
            return
        self._seen.append(function)
        remembers = type(function) is functools._lru_cache_wrapper
        inner = function.__wrapped__ if remembers else function
        if type(inner) is not types.FunctionType or not _is_users(inner.__globals__):
            return
        code = inner.__code__
        self.functions.add(inner.__qualname__)
        if remembers and function.cache_info().maxsize is None:
            name = inner.__name__
            self.remembered.append(Place(file=code.co_filename, line=code.co_firstlineno, function=name, holder=name))
        names = set(_names_in(code))
        for name in names - self._names:
            self._waiting += self._methods[name]
        self._names |= names
        modules = [value for name in names if type(value := inner.__globals__.get(name)) is types.ModuleType]
        for variables in (inner.__globals__, *filter(_is_users, map(attributes_of, modules))):
            for name in names & variables.keys():
                self._meet(str(variables.get("__file__")), name, variables[name])

    def _meet(self, file: str, name: str, value: Any) -> None:
        """A variable of a module that a function names."""
        if type(value) in (types.FunctionType, functools._lru_cache_wrapper):
            self._waiting.append(value)
        elif container_of(type(value)) is not None:
            self.variables[file, name] = value
        elif is_user_class(type(value)):
            self._enter_objects(value)


def _is_users(variables: dict[str, Any]) -> bool:
    """Whether a module is the user's, by its variables."""
    return is_user_module(str(variables.get("__name__")), variables.get("__file__"))


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function reads, and those in it read."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _names_in(constant)

"""Roots of a heap walk: the user's frames, watched models, additions of the integration, the user's modules.

The garbage collector is the last source: it knows objects that lead to a tensor but that no root reaches.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, final

import torch

from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.children import Scope
from memguard.heap.frames import LIBRARIES, is_user_file

Root = tuple[str, object, int]
"""Kind, name and number of a root: ("frame", code's place, 0), ("model", "", 1), ("extra", "trainer", 0)."""


def roots_of(
    frames: Iterable[types.FrameType], models: Iterable[object] = (), extra: Iterable[tuple[str, object]] = ()
) -> Iterator[tuple[str | None, object]]:
    """The roots of a walk in one go, with their names if they have one, the likeliest first."""
    namespaces: set[int] = set()
    for frame in frames:
        if frame.f_code.co_name != "<module>":
            yield None, Scope.of_frame(frame)
    for frame in frames:
        if id(frame.f_globals) not in namespaces:
            namespaces.add(id(frame.f_globals))
            yield None, Scope(dict(frame.f_globals), frame.f_code.co_filename)
    seen: set[int] = set()
    for model in models:
        yield from ((None, module) for module in submodules_of(model, seen))
    yield from extra
    for file, variables in user_modules():
        if id(variables) not in namespaces:
            yield None, Scope(dict(variables), file)


@final
class RootFinder:
    """The roots of a walk in slices, looked up by what they are found by. Drop it with the slice.

    Args:
        models: The watched models; None for one that is gone.
        frames: The user's frames, innermost first.
        extra: Further objects by name.
    """

    def __init__(self, models: Sequence[object], frames: Sequence[types.FrameType], extra: dict[str, object]) -> None:
        self._models, self._extra = models, extra
        self._frames: dict[Root, types.FrameType] = {}
        self._globals: dict[Root, types.FrameType] = {}
        self._namespaces: set[int] = set()
        # Outermost first: an inner function may be over in the next slice, and what was met by its names alone is lost.
        for frame in reversed(frames):
            code = frame.f_code
            place = (code.co_filename, code.co_firstlineno, code.co_name)
            if code.co_name != "<module>":
                number = sum(root[1] == place for root in self._frames)
                self._frames["frame", place, number] = frame
            if id(frame.f_globals) not in self._namespaces:
                self._namespaces.add(id(frame.f_globals))
                self._globals["globals", str(frame.f_globals.get("__name__")), len(self._globals)] = frame

    def roots(self) -> list[Root]:
        """The roots besides models and modules."""
        return [*self._frames, *self._globals, *(("extra", name, 0) for name in self._extra)]

    def modules(self) -> list[Root]:
        """The user's modules as roots, which come last."""
        return [("module", name, 0) for name in user_module_names()]

    def value_of(self, root: Root | None) -> Any:
        """The object at a root; None if it went away."""
        kind, name, number = root or ("", "", 0)
        if kind == "model":
            return self._models[number]
        if kind == "extra":
            return self._extra.get(str(name))
        if root in self._frames:
            return Scope.of_frame(self._frames[root])
        if root in self._globals:
            frame = self._globals[root]
            return Scope(dict(frame.f_globals), frame.f_code.co_filename)
        variables = attributes_of(sys.modules.get(str(name))) if kind == "module" else {}
        if variables and id(variables) not in self._namespaces:
            return Scope(dict(variables), str(variables.get("__file__") or "<stdin>"))
        return None


def user_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """The user's modules: file and variables of each."""
    for name in user_module_names():
        variables = attributes_of(sys.modules.get(name))
        if variables:
            file = variables.get("__file__")
            yield (file if type(file) is str else "<stdin>"), variables


def user_module_names() -> tuple[str, ...]:
    """The names of the user's modules in `sys.modules`, which are few of thousands."""
    modules = sys.modules
    return _user_module_names(len(modules), next(reversed(modules), ""), id(modules.get("__main__")))


@functools.lru_cache(maxsize=1)
def _user_module_names(count: int, newest: str, program: int) -> tuple[str, ...]:
    """They, until a module comes or goes, or another program begins."""
    return tuple([name for name in sys.modules.copy() if _is_users(name)])


def _is_users(name: str) -> bool:
    if name.partition(".")[0] in LIBRARIES:
        return False
    module = sys.modules.get(name)
    kind = type(module)
    if kind is not types.ModuleType and not issubclass(kind, types.ModuleType):
        return False
    file = (vars(module) if kind is types.ModuleType else attributes_of(module)).get("__file__")  # of thousands
    return is_user_file(file) if type(file) is str else name == "__main__"


def submodules_of(model: Any, seen: set[int]) -> Iterator[object]:
    """A module and its submodules, each once, read without `modules()`, which a class may override."""
    stack = [model]
    while stack:
        module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        children = attributes_of(module).get("_modules")
        if isinstance(children, dict):
            stack.extend(child for child in reversed(list(dict.values(children))) if child is not None)


T = TypeVar("T")

MAX_CLIMB = 6
MAX_FRONT = 8
MAX_OBJECTS = 500_000


def roots_by_collector(
    judge: Callable[[torch.Tensor], int | None], is_late: Callable[[], bool] = lambda: False
) -> list[Any]:
    """Generators, functions and instances of the user's classes above the tensors a judge recognises.

    Walking down from them names what holds the tensors. Each step up goes over all objects that there are, some 10 to
    30 ms, so it is asked last.

    Args:
        judge: Recognises the tensors.
        is_late: Asked before each step; whether there is no time left for it.
    """
    front: list[Any] = []
    for tensor in instances_of(torch.Tensor, max_objects=MAX_OBJECTS):
        try:
            if judge(tensor) is None:
                continue
        except RuntimeError:  # one that cannot be asked; torch 2.4 leaves emptied ones, which nobody refers to
            continue
        front.append(tensor)
        if len(front) == MAX_FRONT or is_late():
            break
    roots: list[Any] = []
    seen: set[int] = set()
    for _ in range(MAX_CLIMB):
        if not front or is_late():
            break
        referrers = gc.get_referrers(*front)
        above: list[Any] = []
        for referrer in referrers:
            if referrer is front or id(referrer) in seen or type(referrer) is types.FrameType:
                continue
            seen.add(id(referrer))
            if _is_root(referrer):
                roots.append(referrer)
            elif not issubclass(type(referrer), (types.ModuleType, type)):
                above.append(referrer)
        if roots:
            break
        front = above[:MAX_FRONT]
    return roots


def instances_of(*bases: type[T], max_objects: int | None = None) -> list[T]:
    """Every object of some classes, or of one below them, that the collector knows; none in a process of more objects.

    Each call goes over all objects, some tens of milliseconds. The loop runs in C, and by id: to hash a class may run
    the user's code.
    """
    objects = gc.get_objects()
    if max_objects is not None and len(objects) > max_objects:
        return []
    wanted = {id(kind) for kind in _with_those_below(bases)}
    return list(itertools.compress(objects, map(wanted.__contains__, map(id, map(type, objects)))))


def _with_those_below(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _with_those_below(type.__subclasses__(kind))


_CODES = (
    *((types.GeneratorType, "gi_code"), (types.CoroutineType, "cr_code")),
    *((types.AsyncGeneratorType, "ag_code"), (types.FunctionType, "__code__")),
)


def _is_root(obj: Any) -> bool:
    kind = type(obj)
    for base, name in _CODES:
        if kind is base:
            return is_user_file(getattr(obj, name).co_filename)
    return issubclass(kind, BaseException) or is_user_class(kind)

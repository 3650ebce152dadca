"""Roots of a heap walk: the user's frames, watched models, additions of the integration, the user's modules."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

from memguard.heap.attributes import attributes_of
from memguard.heap.children import Scope
from memguard.heap.frames import LIBRARIES, is_user_module

Root = tuple[str, object, int]
"""Kind, name and number of a root: ("frame", code's place, 0), ("model", "", 1), ("extra", "trainer", 0)."""


def roots_of(
    frames: Iterable[types.FrameType], models: Iterable[object] = (), extra: Iterable[tuple[str, object]] = ()
) -> Iterator[tuple[str | None, object]]:
    """The roots of a walk in one go, with their names if they have one, the likeliest first.

    Args:
        frames: The user's frames, innermost first.
        models: Watched models (`torch.nn.Module`); each submodule becomes a root.
        extra: Further objects by name, like a trainer and its callbacks.
    """
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
    for name, module in sys.modules.copy().items():
        if is_user_module_name(name):
            variables = attributes_of(module)
            file = variables.get("__file__")
            yield (file if type(file) is str else "<stdin>"), variables


def is_user_module_name(name: str) -> bool:
    """Whether a name in `sys.modules` is that of a module of the user's."""
    module = sys.modules.get(name)
    if name.partition(".")[0] in LIBRARIES or not issubclass(type(module), types.ModuleType):
        return False
    file = attributes_of(module).get("__file__")
    return is_user_module(name, file if type(file) is str else None)


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

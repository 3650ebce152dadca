"""Where a walk begins: the user's frames, the watched models, what the integration adds, the user's modules."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from memguard.probes.naming.walk import Link
from memguard.probes.objects import Scope, Via, attributes_of
from memguard.probes.objects.frames import LIBRARIES, is_user_module


def roots_of(
    frames: Iterable[types.FrameType], models: Iterable[object] = (), extra: Iterable[tuple[str, object]] = ()
) -> Iterator[Link]:
    """The roots of a walk, the likeliest first.

    Args:
        frames: The user's frames, innermost first.
        models: Watched models (`torch.nn.Module`); each submodule becomes a root.
        extra: Further objects by name, like a trainer and its callbacks.
    """
    namespaces: set[int] = set()
    for frame in frames:
        if frame.f_code.co_name != "<module>":
            yield Link(Scope.of_frame(frame), Via.ROOT)
    for frame in frames:
        if id(frame.f_globals) not in namespaces:
            namespaces.add(id(frame.f_globals))
            yield Link(Scope(dict(frame.f_globals), frame.f_code.co_filename), Via.ROOT)
    seen: set[int] = set()
    for model in models:
        for module in submodules_of(model, seen):
            yield Link(module, Via.ROOT)
    for name, obj in extra:
        yield Link(obj, Via.ROOT, name)
    for file, variables in user_modules():
        if id(variables) not in namespaces:
            yield Link(Scope(dict(variables), file), Via.ROOT)


def user_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """The user's modules: file and variables of each."""
    for name, module in sys.modules.copy().items():
        if name.partition(".")[0] in LIBRARIES or not issubclass(type(module), types.ModuleType):
            continue
        variables = attributes_of(module)
        file = variables.get("__file__")
        file = file if type(file) is str else None
        if is_user_module(name, file):
            yield file or "<stdin>", variables


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

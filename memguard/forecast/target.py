"""``FILE.py:function`` from the command line: found, imported, called."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from memguard.errors import MemGuardError
from memguard.forecast.child import describe
from memguard.forecast.session import Made

_BATCH_NAMES = ("batch", "batch_size", "bs", "b")


def load_target(target: str) -> Callable[..., Any]:
    """The function that a target names: ``FILE.py:function`` or ``package.module:function``.

    Raises:
        MemGuardError: The text has no colon, or the file or the function cannot be had.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise MemGuardError(f"{target!r} does not name a function; write it like train.py:build")
    module = _load_file(place) if place.endswith(".py") or os.sep in place else _load_module(place)
    function = module
    for part in name.split("."):
        function = getattr(function, part, None)  # type: ignore[assignment]
    if not callable(function):
        names = sorted(
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        )
        known = f"; it has {', '.join(names)}" if names else ""
        raise MemGuardError(f"{place} has no function {name!r}{known}")
    return function


def _load_file(place: str) -> ModuleType:
    path = Path(place)
    if not path.is_file():
        raise MemGuardError(f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise MemGuardError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise MemGuardError(f"{place} cannot be imported: {describe(error)}") from None
    return module


def _load_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise MemGuardError(f"{name} cannot be imported: {describe(error)}") from None


def batch_parameter(function: Callable[..., Any]) -> str | None:
    """The name of the parameter through which a function takes its batch size, if it has one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable that Python cannot describe, such as one written in C
        return None
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    named = [name for name in _BATCH_NAMES if name in names]
    required = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is p.empty
    ]
    if named:
        return named[0]
    return required[0] if len(required) == 1 else None


def call_target(function: Callable[..., Any], batch: int | None) -> Made:
    """What the function builds, checked.

    Raises:
        MemGuardError: It did not return model, optimizer and step.
    """
    name = batch_parameter(function)
    made = function(**{name: batch}) if name is not None and batch is not None else function()
    if hasattr(made, "training_step") and hasattr(made, "configure_optimizers"):
        from memguard.forecast.lightning import lightning_made

        return lightning_made(made)
    if not isinstance(made, tuple) or len(made) != 3 or not callable(made[2]):
        raise MemGuardError(
            f"{getattr(function, '__name__', 'the function')} must return (model, optimizer, step), got {_told(made)}"
        )
    return made


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(type(item).__name__ for item in value) + ")"
    return type(value).__name__

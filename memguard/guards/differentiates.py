"""Whether a model's forward differentiates inside itself, read from its code.

A force field calls autograd.grad in its forward, on inputs that ask for no gradient from outside: under no_grad it
would raise. It cannot be tried out, so the code that the forward can reach is read: every function named by it, in
its globals, closures, methods and attributes, is searched for a call of the autograd engine. Library code is not
entered. What cannot be read that way is caught on the first guarded forward (see `memguard.guards.no_grad`).
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator

import torch
from torch import nn

from memguard.torch_objects.module_parts import parts_of

_LIMIT = 4000
# Names that run the engine whatever object they are taken from.
_ENGINE_NAMES = frozenset(
    {"backward", "run_backward", "jacobian", "hessian", "vjp", "jvp", "hvp", "vhp", "create_graph"}
)
_LIBRARIES = (
    "torch.",
    "torchvision.",
    "numpy.",
    "lightning.",
    "pytorch_lightning.",
    "memguard.",
    "collections.",
    "typing.",
)


def differentiates(model: nn.Module) -> bool:
    """Whether code reachable from the model's forward calls the autograd engine.

    Errs towards True only for names like ``backward`` that mean nothing else; costs milliseconds, so ask once a model.
    """
    seen: set[int] = set()
    waiting: list[object] = []
    methods: dict[str, list[object]] = {}
    classes: set[type] = set()
    for module in parts_of(model):
        if isinstance(module, torch.jit.ScriptModule):
            if _script_differentiates(module):
                return True
            continue
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            waiting += hooks.values()
        cls = type(module)
        if not _is_library(cls.__module__):
            waiting += (value for value in vars(module).values() if callable(value))
            if cls not in classes:
                classes.add(cls)
                waiting += [cls.forward, cls.__call__]
                for name, method in _methods(cls):
                    methods.setdefault(name, []).append(method)
    while waiting and len(seen) < _LIMIT:
        function = _function_of(waiting.pop())
        if function is None or id(function) in seen or _is_library(function.__module__ or ""):
            continue
        seen.add(id(function))
        for code in _codes(function.__code__):
            if _calls_engine(code, function):
                return True
            waiting += _reached(code, function)
            for name in code.co_names:
                waiting += methods.get(name, ())
    return False


def _calls_engine(code: types.CodeType, function: types.FunctionType) -> bool:
    names = code.co_names
    if any(name in _ENGINE_NAMES for name in names):
        return True
    if "grad" in names and ("autograd" in names or any(_is_autograd(function, name) for name in names)):
        return True
    called = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return any(function.__globals__.get(name) is torch.autograd.grad for name in called)


def _is_autograd(function: types.FunctionType, name: str) -> bool:
    return function.__globals__.get(name) is torch.autograd


def _reached(code: types.CodeType, function: types.FunctionType) -> Iterator[object]:
    """Functions and classes that the code names in its globals (through user modules too) and closure."""
    space = function.__globals__
    for name in code.co_names:
        value = space.get(name)
        if isinstance(value, types.ModuleType):
            if not _is_library(value.__name__):
                yield from (vars(value).get(other) for other in code.co_names if other in vars(value))
        elif isinstance(value, type):
            if not _is_library(value.__module__) and not issubclass(value, nn.Module):
                yield from (method for _, method in _methods(value))
        elif callable(value):
            yield value
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty: the variable has no value yet
            continue


def _methods(cls: type) -> Iterator[tuple[str, object]]:
    """The methods that a user class and its user bases bring along."""
    for base in cls.__mro__:
        if base is object or _is_library(base.__module__) or issubclass(base, torch.autograd.Function):
            continue
        for name, value in vars(base).items():
            if isinstance(value, (types.FunctionType, staticmethod, classmethod, property, functools.partialmethod)):
                yield name, value


def _function_of(value: object) -> types.FunctionType | None:
    for _ in range(8):
        if isinstance(value, types.FunctionType):
            return value
        if isinstance(value, types.MethodType):
            value = value.__func__
        elif isinstance(value, (functools.partial, functools.partialmethod)):
            value = value.func
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, (type, types.BuiltinFunctionType, nn.Module)) or value is None:
            return None
        else:
            value = vars(type(value)).get("__call__")
    return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_library(module: str) -> bool:
    return module == "torch" or module == "builtins" or module.startswith(_LIBRARIES)


def _script_differentiates(module: nn.Module) -> bool:
    text = getattr(module, "code", "")
    return isinstance(text, str) and ("autograd" in text or "torch.grad" in text or ".backward(" in text)

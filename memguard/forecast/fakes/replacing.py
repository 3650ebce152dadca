"""A function of PyTorch's replaced where it is, so that code which imported it by name runs the replacement too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any


def replace(function: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let a function run another one, for the rest of this process; decorators around it stay.

    Args:
        function: Written in Python, without variables of an enclosing function.
        make: Given what the function did until now, returns what it is to do.
    """
    inner = inspect.unwrap(function)
    before = FunctionType(inner.__code__, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
    before.__kwdefaults__ = inner.__kwdefaults__
    key = f"_memguard_{inner.__name__}"
    inner.__globals__[key] = make(before)
    made: dict[str, Any] = {}
    exec(f"def {inner.__name__}(*args, **kwargs): return {key}(*args, **kwargs)", {}, made)
    inner.__defaults__ = inner.__kwdefaults__ = None
    inner.__code__ = made[inner.__name__].__code__

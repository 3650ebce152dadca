"""A module hook that stays behind when the model is copied or saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, final

import torch


@final
class Hook:
    """Calls a function of memguard's from a module hook; copied or pickled, it becomes inert.

    There it turns into the __exit__ of a contextlib.nullcontext, which takes three arguments and answers None: a copy
    of the model reports nothing to this run, and its pickle loads where memguard is not installed.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        """What torch calls; inside a graph being compiled it does nothing, so that it breaks none."""
        if not torch.compiler.is_compiling():
            self._call(*args)

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")

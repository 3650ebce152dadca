"""Hooks whose failures end inside them, and where they do nothing: under torch's transforms, inside a backward."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, final

import torch

from memguard.torch_objects.hidden_hooks import skipped_by_dynamo

# What torch.compiler.is_compiling asks, in fewer calls: Dynamo takes the function for a constant in what it traces, and
# the module's flag is for all other ways to compile; checked in torch 2.13.
is_traced: Callable[[], bool] = torch.compiler.is_dynamo_compiling
compiler: Any = torch.compiler


def _none() -> None:
    return None


functorch_stack: Callable[[], object] = getattr(
    getattr(torch._C, "_functorch", None), "peek_interpreter_stack", _none
)  # checked in torch 2.13
tracing_state: Callable[[], object] = getattr(torch._C, "_get_tracing_state", _none)  # checked in torch 2.13


def in_transform() -> bool:
    """Whether code runs under torch.func, torch.compile's tracing or torch.jit.trace: probes look away there."""
    return is_traced() or compiler._is_compiling_flag or in_eager_transform()


def in_eager_transform() -> bool:
    """The same for code that torch.compile is known not to trace: what a `Hook` calls."""
    return functorch_stack() is not None or tracing_state() is not None


_task: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)  # checked in torch 2.13
"""Number of the backward that runs on this thread, or -1."""


def in_backward() -> bool:
    """Whether a backward runs; False where torch cannot tell."""
    return _task is not None and _task() != -1


_log = logging.getLogger("memguard")


def log_failure(error: Exception) -> None:
    """Says that a hook failed, where nobody else is told."""
    _log.error("memguard: one of its hooks failed and is off: %s", type(error).__name__)


class StoppableHook:
    """A hook that can be silenced, and is when what it calls fails.

    A subclass has the __call__ that torch calls. It is to do nothing inside a graph that is being compiled, so that it
    breaks none, and begins with that question; for it can be traced itself.

    Args:
        call: What to call; an exception of it never reaches torch, and ends the calls.
        failed: Told of that exception; must not keep it.
    """

    __slots__ = ("_call", "_failed")

    def __init__(self, call: Callable[..., None], failed: Callable[[Exception], None] = log_failure) -> None:
        self._call, self._failed = call, failed

    def hand_on(self, *args: Any) -> None:
        """Calls."""
        try:
            self._call(*args)
        except Exception as error:
            self.end(error)

    def end(self, error: Exception) -> None:
        """It failed: the last that is heard of it."""
        failed = self._failed
        self.stop()
        with contextlib.suppress(Exception):  # nobody is left to tell, and the forward goes on
            failed(error)

    def stop(self) -> None:
        """From now on it does nothing, and holds nothing."""
        self._call, self._failed = _nothing, log_failure


@final
class Hook(StoppableHook):
    """Calls a function of memguard's from a hook of torch's."""

    __slots__ = ()

    @skipped_by_dynamo
    def __call__(self, *args: Any) -> None:
        """What torch calls."""
        if not (is_traced() or compiler._is_compiling_flag):
            try:
                self._call(*args)
            except Exception as error:
                self.end(error)


def _nothing(*args: object) -> None:
    pass

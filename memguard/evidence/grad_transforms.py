"""Whether code runs under a torch transform, where probes do nothing, or inside a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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

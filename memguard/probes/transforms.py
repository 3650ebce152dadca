"""Whether code runs under a transform of torch's, where probes look away."""

from __future__ import annotations

from collections.abc import Callable

import torch

_is_compiling = torch.compiler.is_compiling
_functorch: Callable[[], object] | None = getattr(
    getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None
)  # checked in torch 2.13
_tracing: Callable[[], object] | None = getattr(torch._C, "_get_tracing_state", None)  # checked in torch 2.13


def in_transform() -> bool:
    """Whether code runs under torch.func, torch.compile's tracing or torch.jit.trace: probes look away there."""
    return _is_compiling() or in_eager_transform()


def in_eager_transform() -> bool:
    """The same for code that torch.compile is known not to trace: what a `Hook` calls."""
    if _functorch is not None and _functorch() is not None:
        return True
    return _tracing is not None and _tracing() is not None

"""Memory that CUDA kernels take beside their outputs, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

Scratch = Callable[["Tracer", int, tuple[Any, ...], dict[str, Any], Any], None]
"""Records an operator's outputs and what it took meanwhile: tracer, site, arguments, keyword arguments, outputs."""

aten = torch.ops.aten


def _gemm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer._outputs(out, site)
    tracer.library_call(Kind.GEMM, site)


def _addmm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer._outputs(out, site)
    bias = args[0]
    fused = (
        bias.dim() == 1
        and out.dim() == 2
        and bias.is_contiguous()
        and not kwargs
        and args[1].shape[0] > 1
        and args[1].shape[1] > 1
    )
    tracer.library_call(Kind.EPILOGUE_GEMM if fused else Kind.GEMM, site)


def _dropout(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer._outputs(out[1], site)
    tracer._outputs(out[0], site)


_SCRATCH: dict[Any, Scratch] = {
    aten.native_dropout.default: _dropout,
    aten.mm.default: _gemm,
    aten.bmm.default: _gemm,
    aten.baddbmm.default: _gemm,
    aten.addmm.default: _addmm,
}


def scratch_of(func: Any) -> Scratch | None:
    """How the operator's CUDA kernel takes memory, or None if its outputs are all."""
    return _SCRATCH.get(func)

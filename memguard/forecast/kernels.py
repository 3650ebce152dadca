"""Operators that fake tensors run otherwise than CUDA would: attention, values that a step reads, empty answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from memguard.forecast.scratch_convolution import convolution_backward_kernel, convolution_kernel

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

Kernel = Callable[["Tracer", int, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operator: tracer, site, operator, arguments, keyword arguments."""

aten: Any = torch.ops.aten


def _item(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    if getattr(tensor, "constant", None) is not None:
        return func(*args, **kwargs)
    tracer.note_value(site, tensor.dtype)
    if tensor.dtype == torch.bool:
        return False
    return 0.0 if tensor.dtype.is_floating_point else 0


def _nonzero(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    tracer.note("the step selects by value (nonzero, a boolean mask): counted as if every element were selected")
    return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64, device=tensor.device)


KERNELS: dict[Any, Kernel] = {
    aten._local_scalar_dense.default: _item,
    aten.nonzero.default: _nonzero,
    aten.convolution.default: convolution_kernel,
    aten.convolution_backward.default: convolution_backward_kernel,
}

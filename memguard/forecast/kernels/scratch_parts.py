"""What several CUDA kernels take: a contiguous copy of an input, the buffer of a large reduction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels.reduction import reduction_scratch

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

Scratch = Callable[["Tracer", int, tuple[Any, ...], dict[str, Any], Any], None]
"""Records an operator's outputs and what it took meanwhile: tracer, site, arguments, keyword arguments, outputs."""

HALVES = (torch.float16, torch.bfloat16)


def nbytes_of(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def contiguous_copy(
    tracer: Tracer, site: int, tensor: Tensor, layout: torch.memory_format = torch.contiguous_format
) -> Callable[[], None]:
    """The copy that a kernel makes of an input that is not contiguous; the function returned gives it back."""
    if tensor.is_contiguous(memory_format=layout):
        return nothing
    return tracer.hold(site, nbytes_of(tensor))


def nothing() -> None:
    """Gives nothing back."""


def take_reduction(
    tracer: Tracer, site: int, tensor: Tensor, dims: Iterable[int], accumulator_bytes: int | None = None
) -> None:
    """The scratch of a reduction of `tensor` over `dims`, taken and given back."""
    wide = tensor.dtype in (torch.float64, torch.int64)
    buffer, semaphores = reduction_scratch(
        tensor.shape,
        tensor.stride(),
        list(dims),
        itemsize=tensor.element_size(),
        accumulator_bytes=accumulator_bytes or (8 if wide else 4),
        multiprocessors=tracer.setting.multiprocessors,
        threads_per_multiprocessor=tracer.setting.threads_per_multiprocessor,
    )
    if buffer:
        tracer.take(site, buffer, semaphores)


def dims_of(tensor: Tensor, dims: Any) -> list[int]:
    """The dimensions that a reduction goes over; none named are all."""
    if isinstance(dims, int):
        dims = [dims]
    if isinstance(dims, float) or not dims:  # the order of a norm, or everything
        return list(range(tensor.dim()))
    return [d % tensor.dim() for d in dims] if tensor.dim() else []

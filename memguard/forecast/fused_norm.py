"""rms_norm as CUDA runs it since 2.9, in one kernel; a CPU build takes it apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_SINCE = (2, 9)


def install_rms_norm(tracer: Tracer) -> torch.library.Library | None:
    """Replace the parts by the kernel; the library returned must be kept alive. None where there is none to replace."""
    apart: Any = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if apart is None or tracer.setting.torch_version < _SINCE:
        return None

    def rms_norm(
        input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        fits = weight is None or weight.dtype == input.dtype
        if input.device.type != "cuda" or not fits or not input.is_floating_point():
            return apart(input, normalized_shape, weight, eps)[0]  # type: ignore[no-any-return]
        return _RMSNorm.apply(input, weight, len(normalized_shape))  # type: ignore[no-any-return, no-untyped-call]

    library = torch.library.Library("aten", "IMPL")
    library.impl("rms_norm", rms_norm, "CompositeImplicitAutograd")
    return library


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, weight: Tensor | None, dims: int) -> Tensor:
        out = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        scale = tensor.new_empty(tensor.shape[: tensor.dim() - dims], dtype=wide)
        ctx.save_for_backward(tensor, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tensor, weight, _ = ctx.saved_tensors
        for_input = torch.empty_like(tensor) if ctx.needs_input_grad[0] else None
        for_weight = torch.empty_like(weight) if weight is not None and ctx.needs_input_grad[1] else None
        return for_input, for_weight, None

"""Norms as newer CUDA builds run them: rms_norm in one kernel since 2.9, group norm on channels last since 2.15."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels.scratch_norms import group_layout

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_RMS_NORM_SINCE = (2, 9)
_GROUP_NORM_SINCE = (2, 15)


def install_rms_norm(tracer: Tracer) -> torch.library.Library | None:
    """Replace the parts by the kernel; the library returned must be kept alive. None where there is none to replace."""
    apart: Any = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if apart is None or tracer.setting.torch_version < _RMS_NORM_SINCE:
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


def install_group_norm(tracer: Tracer) -> torch.library.Library | None:
    """Let group norm keep the layout of its input; the library returned must be kept alive. None before 2.15."""
    if tracer.setting.torch_version < _GROUP_NORM_SINCE:
        return None
    native = torch.ops.aten.native_group_norm

    def group_norm(
        input: Tensor,
        num_groups: int,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Tensor:
        tensor = input if group_layout(tracer, input) != torch.contiguous_format else input.contiguous()
        samples, channels = tensor.shape[:2]
        size = tensor.numel() // max(samples * channels, 1)
        return native(tensor, weight, bias, samples, channels, size, num_groups, eps)[0]  # type: ignore[no-any-return]

    library = torch.library.Library("aten", "IMPL")
    library.impl("group_norm", group_norm, "CompositeImplicitAutograd")
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

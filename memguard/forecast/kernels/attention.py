"""scaled_dot_product_attention as CUDA runs it: which kernel is chosen, and what it takes. From sdp_utils.cpp.

Checked against torch 2.15.0 on compute capabilities 7.5, 8.0 and 9.0. cuDNN's attention, which a Hopper card may
prefer, is counted as flash attention: the same outputs, and a workspace that only the GPU knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memguard.forecast.setting import Setting

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_MASK_ALIGNMENT = 8


def install_attention(tracer: Tracer) -> torch.library.Library:
    """Replace PyTorch's choice, which is the CPU's on this machine; the library returned must be kept alive."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        flat = query.dim() == key.dim() == value.dim() == 3 and tracer.setting.torch_version >= (2, 15)
        if flat and query.device.type == "cuda" and (attn_mask is None or attn_mask.dim() in (2, 3)):
            mask = attn_mask.unsqueeze(0) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
            q, k, v = (tensor.unsqueeze(0) for tensor in (query, key, value))
            return attention(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa).squeeze(0)
        kernel = _choose(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, tracer.setting)
        if kernel == "math":
            mask = _as_float(attn_mask, query.dtype)
            return _aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )[0]
        if kernel == "flash":
            width = query.shape[-1]
            scale = scale if scale is not None else width**-0.5
            q, k, v = (_pad_last(tensor, 8) for tensor in (query, key, value))
            out: Tensor = _aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[
                0
            ]
            return out[..., :width] if out.shape[-1] != width else out
        mask = _as_float(attn_mask, query.dtype)
        if mask is not None:
            mask = _aligned_mask(mask, query, key)
        grads = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
        out = _aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, grads, dropout_p, is_causal, scale=scale
        )[0]
        return out

    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", attention, "CompositeImplicitAutograd")
    return library


def _choose(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    gqa: bool,
    setting: Setting,
) -> str:
    """One of "flash", "efficient" and "math"."""
    capability = setting.compute_capability
    grouped = gqa and setting.torch_version >= (2, 15)  # not in 2.12
    if query.device.type != "cuda" or query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        return "math"
    if 0 in query.shape or 0 in key.shape or query.dtype != key.dtype or query.dtype != value.dtype:
        return "math"
    if any(tensor.stride(-1) != 1 for tensor in (query, key, value)):
        return "math"
    same_heads = query.shape[1] == key.shape[1] == value.shape[1]
    same_batch = query.shape[0] == key.shape[0] == value.shape[0]
    width, value_width = query.shape[-1], value.shape[-1]
    if (
        torch.backends.cuda.flash_sdp_enabled()
        and capability >= (8, 0)
        and query.dtype in _HALVES
        and mask is None
        and same_batch
        and (same_heads or gqa)
        and width == value_width
        and width <= 256
        and not (causal and query.shape[2] != key.shape[2])
    ):
        return "flash"
    if (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and (same_heads or grouped)
        and same_batch
        and (mask is None or mask.stride(-1) == 1)
        and (
            query.dtype == torch.float32
            or query.dtype == torch.float16
            or (query.dtype in _HALVES and capability >= (8, 0))
        )
        and width % (alignment := _alignment(query.dtype, capability)) == 0
        and value_width % alignment == 0
    ):
        return "efficient"
    return "math"


def _alignment(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Elements to which the widths must be aligned for tensor cores (C++: ``minimum_gemm_alignment``)."""
    if dtype in _HALVES:
        return 8 if capability >= (7, 0) else 4 if capability >= (8, 0) else 1
    return 4 if capability >= (8, 0) else 1


def _as_float(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask as a bias, as PyTorch converts it."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    allowed, forbidden = (torch.full((), value, dtype=dtype, device=mask.device) for value in (0.0, float("-inf")))
    return torch.where(mask, allowed, forbidden)


def _pad_last(tensor: Tensor, multiple: int) -> Tensor:
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _aligned_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The bias as the memory-efficient kernel needs it: rows that begin at multiples of 8 elements, expanded."""
    length = mask.shape[-1]
    missing = -length % _MASK_ALIGNMENT
    if missing:
        mask = torch.nn.functional.pad(mask, (0, missing)).narrow(-1, 0, length)
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])

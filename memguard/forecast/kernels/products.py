"""prod and cumprod: their backward looks for zeros first, and goes the short way where there are none.

For tensors of any kind PyTorch takes the long way, which needs several times the memory. The formulas are those of
FunctionsManual.cpp, checked with torch 2.15.0; like the null GPU, this takes it that no number is zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_below = torch._C._AutoDispatchBelowAutograd


def install_products() -> torch.library.Library:
    """Replace the gradients on the GPU; the library returned must be kept alive."""

    def prod(tensor: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
        return _Product.apply(tensor.to(dtype) if dtype is not None else tensor, dim, keepdim)  # type: ignore[no-any-return, no-untyped-call]

    def cumprod(tensor: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        return _Products.apply(tensor.to(dtype) if dtype is not None else tensor, dim)  # type: ignore[no-any-return, no-untyped-call]

    library = torch.library.Library("aten", "IMPL")
    library.impl("prod.dim_int", prod, "AutogradCUDA")
    library.impl("cumprod", cumprod, "AutogradCUDA")
    return library


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, keepdim: bool) -> Tensor:
        with _below():
            out: Tensor = torch.ops.aten.prod.dim_int(tensor, dim, keepdim)
        ctx.save_for_backward(tensor, out)
        ctx.dim, ctx.keepdim = dim, keepdim
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tensor, out = ctx.saved_tensors
        if not ctx.keepdim:
            gradient, out = gradient.unsqueeze(ctx.dim), out.unsqueeze(ctx.dim)
        zeros = tensor == 0
        count = zeros.sum(ctx.dim, True)
        count.sum()
        found = gradient * (out / tensor)
        del count, zeros  # in the order in which C++ lets go
        return found, None, None


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int) -> Tensor:
        with _below():
            out: Tensor = torch.ops.aten.cumprod.default(tensor, dim)
        ctx.save_for_backward(tensor, out)
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tensor, out = ctx.saved_tensors
        weighted = out * gradient
        zeros = tensor == 0
        zeros.any()
        turned = weighted.flip(ctx.dim)
        added = turned.cumsum(ctx.dim)
        back = added.flip(ctx.dim)
        del added, turned
        found = back / tensor
        del back, zeros, weighted  # in the order in which C++ lets go
        return found, None

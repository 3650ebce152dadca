"""The steps of attention that Liger-Kernel's benchmarks measure, in eager PyTorch and written anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.bench.published_operators import CUDA, Repeated, Settings, Step, dtype_of, leaf


class _Neighbours(nn.Module):
    """Attention within a window, by a mask of all pairs."""

    def __init__(self, width: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, self.size)
        query, key, value = self.q(x), self.k(x), self.v(x)
        query, key, value = (one.view(split).transpose(1, 2) for one in (query, key, value))
        out, _kept = self.attend(query, key, value)
        out = out.transpose(1, 2).contiguous().view(batch, length, width)
        return self.out(out)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The result, and what is alive as long as the benchmark's forward runs."""
        length = query.shape[2]
        scores = torch.matmul(query, key.transpose(-2, -1)) * (1 / math.sqrt(self.size))
        mask = torch.zeros(length, length, device=query.device, dtype=torch.bool)
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return torch.matmul(weights, value), (scores, mask, weights)


class _Window(torch.autograd.Function):
    """What kernels that know the window allocate: scores and weights of all pairs, and a gradient for each."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        out, length = torch.empty_like(query), query.shape[2]
        scores = torch.empty(*query.shape[:2], length, length, device=CUDA, dtype=query.dtype)
        _mask = torch.zeros(length, length, device=CUDA)
        ctx.save_for_backward(query, key, value, torch.empty_like(scores))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        _gradient = gradient.contiguous()
        gradients = [torch.zeros_like(saved) for saved in ctx.saved_tensors]
        _scores = torch.empty_like(gradients[-1])
        return tuple(gradients[:3])


class _FusedNeighbours(_Neighbours):
    """The same by kernels of the benchmark's own, whose speed is measured first."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return _Window.apply(query, key, value), ()


def fused_neighborhood_attention(x: int, settings: Settings) -> Step:
    """Beside the weights of a second module."""
    dtype, width, heads = dtype_of(settings), settings["hidden_size"], settings["num_heads"]
    layers = [kind(width, heads, settings["bias"]).to(CUDA, dtype) for kind in (_FusedNeighbours, _Neighbours)]
    tensor = leaf(settings["batch_size"], x, width, dtype=dtype)
    chosen = 0 if settings["fused"] else 1
    return Repeated(lambda: layers[chosen](tensor), torch.randn_like(tensor))


def multi_token_attention(x: int, settings: Settings) -> Step:
    """A convolution over attention weights."""
    dtype, channels, side = dtype_of(settings), settings["C_in"], settings["K"]
    weights = [
        nn.Parameter(
            torch.randn(settings["C_out"], channels // settings["groups"], side, side, device=CUDA, dtype=dtype)
        )
        for _ in range(2)
    ]
    biases = [nn.Parameter(torch.zeros(settings["C_out"], device=CUDA, dtype=dtype)) for _ in range(2)]
    scores = leaf(settings["B"], channels, x, x, dtype=dtype)
    gradient = torch.randn_like(scores)

    def forward() -> Tensor:
        mask = torch.tril(torch.ones(x, x, dtype=torch.bool, device=CUDA)).view(1, 1, x, x)
        low = torch.tensor(-1e9, device=CUDA, dtype=dtype)
        zero = torch.tensor(0.0, device=CUDA, dtype=dtype)
        hidden = scores.masked_fill(~mask, low)
        shares = F.softmax(hidden, dim=-1)
        out = F.conv2d(shares, weights[1], biases[1], padding=side // 2, groups=settings["groups"])
        return out.masked_fill(~mask, zero)

    return Repeated(forward, gradient)


STEPS: dict[str, Callable[[int, Settings], Step]] = {
    function.__name__: function for function in (fused_neighborhood_attention, multi_token_attention)
}
WARMED = ("fused_neighborhood_attention",)
"""Benchmarks that keep a first result while they measure speed, that of their own kernel before PyTorch's."""

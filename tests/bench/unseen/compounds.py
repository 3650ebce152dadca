"""What people write of several operators, and operators that draw random numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from unseen.operators import CUDA, HEADS, IMAGE, TOKENS, constant, operator


def _rotate(q: Tensor, c: Tensor) -> Tensor:
    a, b = q.chunk(2, -1)
    return q * c + torch.cat((-b, a), -1) * c


def _rotate_complex(q: Tensor) -> Tensor:
    turned = torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2))
    by = torch.polar(torch.ones(128, 1, 32, device=CUDA), torch.zeros(128, 1, 32, device=CUDA))
    return torch.view_as_real(turned * by).flatten(3)


PROGRAMS = (
    operator("rope", lambda q, c: _rotate(q, c), HEADS, constant(128, 64), autocast=True, halves=True),
    operator("rope_complex", lambda q: _rotate_complex(q), (4, 128, 8, 64)),
    operator("fft", lambda x: torch.fft.irfft(torch.fft.rfft(x)), (64, 256)),
    operator("cast", lambda x: x.half().float(), TOKENS),
    operator("cast_bf", lambda x: x.bfloat16() * 2, TOKENS),
    operator(
        "checkpoint",
        lambda x, w: checkpoint(lambda a: F.dropout(F.gelu(a @ w), 0.1) @ w.t(), x, use_reentrant=False),
        (512, 256),
        (256, 1024),
        autocast=True,
        halves=True,
    ),
    operator(
        "checkpoint_re",
        lambda x, w: checkpoint(lambda a: F.gelu(a @ w) @ w.t(), x, use_reentrant=True),
        (512, 256),
        (256, 1024),
    ),
    operator("inplace_relu", lambda x: F.relu_(x * 2), TOKENS),
    operator("inplace_add", lambda x: (x * 2).add_(x), TOKENS),
    operator("residual", lambda x, w: x + F.gelu(F.linear(x, w)), (512, 256), (256, 256), autocast=True, halves=True),
    operator(
        "swiglu",
        lambda x, a, b, c: F.silu(x @ a) * (x @ b) @ c,
        (512, 256),
        (256, 512),
        (256, 512),
        (512, 256),
        autocast=True,
        halves=True,
    ),
    operator("twice", lambda x, w: F.linear(F.linear(x, w), w), (512, 256), (256, 256), autocast=True),
    operator("shared3", lambda x: x * 2 + x * 3 + x.exp(), TOKENS),
    operator("double_use", lambda x, w: (x @ w).sum() + (x @ w).pow(2).sum(), (512, 256), (256, 256)),
    operator("dropout", lambda x: F.dropout(x, 0.1), TOKENS, halves=True),
    operator("dropout2d", lambda x: F.dropout2d(x, 0.1), IMAGE),
    operator("dropout1d", lambda x: F.dropout1d(x, 0.1), (8, 32, 256)),
    operator("alpha_dropout", lambda x: F.alpha_dropout(x, 0.1, True), TOKENS),
    operator("drop_path", lambda x: x * x.new_empty(64, 1, 1).bernoulli_(0.9).div_(0.9), TOKENS),
    operator("rand_mask", lambda x: x * (torch.rand_like(x) > 0.5), TOKENS),
    operator("randn_like", lambda x: x + torch.randn_like(x) * x.exp(), TOKENS),
    operator("gumbel", lambda x: F.gumbel_softmax(x, hard=True), TOKENS),
    operator("multinomial", lambda x: x[torch.multinomial(torch.ones(1000, device=CUDA), 64)], (1000, 64)),
    operator("rrelu", lambda x: F.rrelu(x, training=True), TOKENS),
    operator("randperm", lambda x: x[torch.randperm(64, device=CUDA)], TOKENS),
)

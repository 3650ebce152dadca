"""Attention by every kernel."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import HEADS, constant, mask, operator

_WIDTHS = (64, 80, 96, 128, 160, 256, 512)


def _attend(**options: Any) -> Any:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def _biased(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


PROGRAMS = (
    *(
        operator(
            f"biased_{width}_{length}", _biased, *[(2, 4, length, width)] * 3, constant(length, length), halves=True
        )
        for width in _WIDTHS
        for length in (100, 256)
    ),
    operator("sdpa", _attend(), HEADS, HEADS, HEADS, autocast=True, halves=True),
    operator("sdpa_causal", _attend(is_causal=True), HEADS, HEADS, HEADS, autocast=True, halves=True),
    operator("sdpa_drop", _attend(dropout_p=0.1), HEADS, HEADS, HEADS, autocast=True, halves=True),
    operator("sdpa_mask", _biased, HEADS, HEADS, HEADS, constant(128, 128), autocast=True, halves=True),
    operator("sdpa_maskg", _biased, HEADS, HEADS, HEADS, (4, 8, 128, 128), halves=True),
    operator("sdpa_bool", _biased, HEADS, HEADS, HEADS, mask(4, 1, 1, 128), autocast=True, halves=True),
    operator("sdpa_odd", _attend(), (4, 8, 100, 60), (4, 8, 100, 60), (4, 8, 100, 60), halves=True),
    operator("sdpa_odd2", _attend(), (4, 8, 100, 50), (4, 8, 100, 50), (4, 8, 100, 50), halves=True),
    operator("sdpa_cross", _attend(), HEADS, (4, 8, 77, 64), (4, 8, 77, 64), halves=True),
    operator("sdpa_wide", _attend(is_causal=True), (2, 4, 256, 128), (2, 4, 256, 128), (2, 4, 256, 128), halves=True),
    operator("sdpa_256", _attend(), (2, 4, 256, 256), (2, 4, 256, 256), (2, 4, 256, 256), halves=True),
    operator("sdpa_512", _attend(), (2, 2, 64, 512), (2, 2, 64, 512), (2, 2, 64, 512), halves=True),
    operator(
        "sdpa_t",
        lambda q, k, v: (
            F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            .transpose(1, 2)
            .reshape(4, 128, 512)
        ),
        (4, 128, 8, 64),
        (4, 128, 8, 64),
        (4, 128, 8, 64),
        autocast=True,
        halves=True,
    ),
    operator(
        "sdpa_gqa",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        HEADS,
        (4, 2, 128, 64),
        (4, 2, 128, 64),
        halves=True,
    ),
    operator(
        "sdpa_gqa_exp",
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), is_causal=True
        ),
        HEADS,
        (4, 2, 128, 64),
        (4, 2, 128, 64),
        halves=True,
    ),
    operator("sdpa_3d", _attend(), (32, 128, 64), (32, 128, 64), (32, 128, 64), halves=True),
    operator("sdpa_long", _attend(is_causal=True), (1, 4, 2048, 64), (1, 4, 2048, 64), (1, 4, 2048, 64), halves=True),
    operator("sdpa_vdim", _attend(), HEADS, HEADS, (4, 8, 128, 32), halves=True),
    operator("sdpa_scale", _attend(scale=1.0), HEADS, HEADS, HEADS, halves=True),
    operator("sdpa_d40", _attend(), (2, 8, 256, 40), (2, 8, 256, 40), (2, 8, 256, 40), halves=True),
    operator("sdpa_d80", _attend(), (2, 8, 256, 80), (2, 8, 77, 80), (2, 8, 77, 80), halves=True),
    operator("sdpa_d96", _attend(is_causal=True), (2, 8, 256, 96), (2, 8, 256, 96), (2, 8, 256, 96), halves=True),
    operator(
        "sdpa_drop_mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, dropout_p=0.1),
        HEADS,
        HEADS,
        HEADS,
        constant(4, 1, 128, 128),
        halves=True,
    ),
    operator(
        "attn_hand",
        lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v,
        HEADS,
        HEADS,
        HEADS,
        autocast=True,
        halves=True,
    ),
    operator(
        "attn_hand_mask",
        lambda q, k, v, m: (
            F.dropout(F.softmax((q @ k.transpose(-1, -2) / 8.0).masked_fill(m, float("-inf")), -1), 0.1) @ v
        ),
        HEADS,
        HEADS,
        HEADS,
        mask(128, 128),
        autocast=True,
        halves=True,
    ),
    operator(
        "attn_hand_f32",
        lambda q, k, v: F.softmax(q @ k.transpose(-1, -2) / 8.0, -1, dtype=torch.float32).to(q.dtype) @ v,
        HEADS,
        HEADS,
        HEADS,
        halves=True,
    ),
    operator(
        "eff_256_k77", _biased, (2, 4, 256, 128), (2, 4, 72, 128), (2, 4, 72, 128), constant(256, 72), halves=True
    ),
)

"""Normalisations in each layout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import CUDA, IMAGE, TOKENS, operator


def _batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.batch_norm(x, torch.zeros(x.shape[1], device=CUDA), torch.ones(x.shape[1], device=CUDA), w, b, True)


def _channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


PROGRAMS = (
    operator(
        "layer_norm", lambda x, w, b: F.layer_norm(x, (256,), w, b), TOKENS, (256,), (256,), autocast=True, halves=True
    ),
    operator("layer_norm_na", lambda x: F.layer_norm(x, (256,)), TOKENS),
    operator("layer_norm_w", lambda x, w: F.layer_norm(x, (256,), w), TOKENS, (256,), halves=True),
    operator(
        "layer_norm_big",
        lambda x, w, b: F.layer_norm(x, (1024,), w, b),
        (16384, 1024),
        (1024,),
        (1024,),
        autocast=True,
        halves=True,
    ),
    operator("layer_norm_t", lambda x, w, b: F.layer_norm(x.transpose(1, 2), (128,), w, b), TOKENS, (128,), (128,)),
    operator("layer_norm_mixed", lambda x, w, b: F.layer_norm(x, (256,), w.float(), b.float()), TOKENS, (256,), (256,)),
    operator("layer_norm2", lambda x, w, b: F.layer_norm(x, (128, 256), w, b), TOKENS, (128, 256), (128, 256)),
    operator("rms_norm", lambda x, w: F.rms_norm(x, (256,), w), TOKENS, (256,), autocast=True, halves=True),
    operator("rms_norm_na", lambda x: F.rms_norm(x, (256,)), TOKENS),
    operator(
        "rms_hand",
        lambda x, w: w * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-06)).to(x.dtype),
        TOKENS,
        (256,),
        autocast=True,
        halves=True,
    ),
    operator("group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), IMAGE, (32,), (32,), autocast=True, halves=True),
    operator("group_norm_na", lambda x: F.group_norm(x, 8), IMAGE),
    operator("group_norm1", lambda x, w, b: F.group_norm(x, 1, w, b), IMAGE, (32,), (32,)),
    operator(
        "group_norm_cl", lambda x, w, b: F.group_norm(_channels_last(x), 8, w, b), IMAGE, (32,), (32,), halves=True
    ),
    operator("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGE, (32,), (32,)),
    operator("instance_norm_na", lambda x: F.instance_norm(x), IMAGE),
    operator("batch_norm", _batch_norm, IMAGE, (32,), (32,), autocast=True, halves=True),
    operator("batch_norm_2d", _batch_norm, (512, 64), (64,), (64,), autocast=True, halves=True),
    operator("batch_norm_3d", _batch_norm, (16, 64, 128), (64,), (64,), autocast=True),
    operator("batch_norm_5d", _batch_norm, (2, 16, 8, 16, 16), (16,), (16,)),
    operator(
        "batch_norm_cl",
        lambda x, w, b: _batch_norm(_channels_last(x), w, b),
        IMAGE,
        (32,),
        (32,),
        autocast=True,
        halves=True,
    ),
    operator(
        "batch_norm_eval",
        lambda x, w, b: F.batch_norm(x, torch.zeros(32, device=CUDA), torch.ones(32, device=CUDA), w, b, False),
        IMAGE,
        (32,),
        (32,),
    ),
    operator(
        "batch_norm_na",
        lambda x: F.batch_norm(x, torch.zeros(32, device=CUDA), torch.ones(32, device=CUDA), training=True),
        IMAGE,
    ),
    operator("batch_norm_half_w32", lambda x, w, b: _batch_norm(x.half(), w, b), IMAGE, (32,), (32,)),
    operator("local_response", lambda x: F.local_response_norm(x, 5), IMAGE),
)

"""Convolutions, pooling and resampling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import IMAGE, operator


def _channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


PROGRAMS = (
    operator(
        "conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), IMAGE, (64, 32, 3, 3), (64,), autocast=True, halves=True
    ),
    operator("conv2d_nb", lambda x, w: F.conv2d(x, w, padding=1, stride=2), IMAGE, (64, 32, 3, 3), autocast=True),
    operator(
        "conv2d_dw",
        lambda x, w, b: F.conv2d(x, w, b, padding=3, groups=32),
        IMAGE,
        (32, 1, 7, 7),
        (32,),
        autocast=True,
        halves=True,
    ),
    operator(
        "conv2d_dw3",
        lambda x, w: F.conv2d(x, w, padding=1, groups=32),
        IMAGE,
        (32, 1, 3, 3),
        autocast=True,
        halves=True,
    ),
    operator("conv2d_group", lambda x, w: F.conv2d(x, w, padding=1, groups=4), IMAGE, (64, 8, 3, 3)),
    operator(
        "conv2d_cl",
        lambda x, w, b: F.conv2d(_channels_last(x), _channels_last(w), b, padding=1),
        IMAGE,
        (64, 32, 3, 3),
        (64,),
        autocast=True,
        halves=True,
    ),
    operator("conv2d_clx", lambda x, w, b: F.conv2d(_channels_last(x), w, b, padding=1), IMAGE, (64, 32, 3, 3), (64,)),
    operator(
        "conv2d_dw_cl",
        lambda x, w: F.conv2d(_channels_last(x), w, padding=1, groups=32),
        IMAGE,
        (32, 1, 3, 3),
        halves=True,
    ),
    operator(
        "conv1d",
        lambda x, w, b: F.conv1d(x, w, b, padding=1),
        (8, 32, 256),
        (64, 32, 3),
        (64,),
        autocast=True,
        halves=True,
    ),
    operator(
        "conv1d_dw",
        lambda x, w, b: F.conv1d(x, w, b, padding=3, groups=32),
        (8, 32, 256),
        (32, 1, 4),
        (32,),
        halves=True,
    ),
    operator("conv1d_dil", lambda x, w, b: F.conv1d(x, w, b, dilation=4), (8, 32, 256), (64, 32, 2), (64,)),
    operator(
        "conv3d",
        lambda x, w, b: F.conv3d(x, w, b, padding=1),
        (2, 8, 16, 16, 16),
        (16, 8, 3, 3, 3),
        (16,),
        autocast=True,
        halves=True,
    ),
    operator(
        "convT2d",
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
        IMAGE,
        (32, 16, 2, 2),
        (16,),
        autocast=True,
        halves=True,
    ),
    operator("convT1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=4), (8, 32, 64), (32, 16, 8), (16,)),
    operator("conv2d_1x1", lambda x, w, b: F.conv2d(x, w, b), IMAGE, (64, 32, 1, 1), (64,), autocast=True),
    operator("conv2d_dil", lambda x, w, b: F.conv2d(x, w, b, dilation=2, padding=2), IMAGE, (64, 32, 3, 3), (64,)),
    operator("conv2d_same", lambda x, w, b: F.conv2d(x, w, b, padding="same"), IMAGE, (64, 32, 4, 4), (64,)),
    operator("conv_noncontig", lambda x, w: F.conv2d(x.transpose(2, 3), w, padding=1), IMAGE, (64, 32, 3, 3)),
    operator("max_pool2d", lambda x: F.max_pool2d(x, 2), IMAGE, halves=True),
    operator("max_pool2d_cl", lambda x: F.max_pool2d(_channels_last(x), 3, 2, 1), IMAGE, halves=True),
    operator("max_pool1d", lambda x: F.max_pool1d(x, 2), (8, 32, 256)),
    operator("max_pool3d", lambda x: F.max_pool3d(x, 2), (2, 8, 16, 16, 16)),
    operator("avg_pool2d", lambda x: F.avg_pool2d(x, 2), IMAGE),
    operator("avg_pool1d", lambda x: F.avg_pool1d(x, 2), (8, 32, 256)),
    operator("adaptive_avg1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE, halves=True),
    operator("adaptive_avg7", lambda x: F.adaptive_avg_pool2d(x, 7), IMAGE),
    operator("adaptive_avg7_cl", lambda x: F.adaptive_avg_pool2d(_channels_last(x), 7), IMAGE),
    operator("adaptive_max", lambda x: F.adaptive_max_pool2d(x, 4), IMAGE),
    operator("adaptive_avg_1d", lambda x: F.adaptive_avg_pool1d(x, 4), (8, 32, 256)),
    operator("lp_pool", lambda x: F.lp_pool2d(x, 2, 2), IMAGE),
    operator("interp_nearest", lambda x: F.interpolate(x, scale_factor=2), IMAGE, halves=True),
    operator(
        "interp_bilinear",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
        IMAGE,
        halves=True,
    ),
    operator("interp_bicubic", lambda x: F.interpolate(x, size=(48, 48), mode="bicubic"), IMAGE),
    operator("interp_aa", lambda x: F.interpolate(x, size=(16, 16), mode="bilinear", antialias=True), IMAGE),
    operator(
        "interp_cl", lambda x: F.interpolate(_channels_last(x), scale_factor=2, mode="bilinear"), IMAGE, halves=True
    ),
    operator("interp_1d", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (8, 32, 256)),
    operator("interp_3d", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (2, 8, 8, 8, 8)),
    operator("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, (8, 16, 16, 2)),
    operator("affine_grid", lambda t: F.affine_grid(t, (8, 3, 32, 32), align_corners=False), (8, 2, 3)),
)

"""Operators that rearrange, and products written with einsum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from unseen.operators import TOKENS, operator


def _set_slice(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, :64] = x[:, 64:]
    return y


PROGRAMS = (
    operator("slice", lambda x: x[:, :64] * 2, TOKENS),
    operator("slice_set", lambda x: _set_slice(x), TOKENS),
    operator("select", lambda x: x[:, 0], TOKENS),
    operator("narrow", lambda x: x.narrow(2, 3, 100), TOKENS),
    operator("chunk", lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1], TOKENS),
    operator("split_cat", lambda x: torch.cat([a * 2 for a in x.split(32, 1)], 1), TOKENS),
    operator("unbind_stack", lambda x: torch.stack([a * 2 for a in x.unbind(0)]), TOKENS),
    operator("cat", lambda a, b: torch.cat((a, b), -1), TOKENS, TOKENS),
    operator("stack", lambda a, b: torch.stack((a, b)), TOKENS, TOKENS),
    operator("flip", lambda x: x.flip(1), TOKENS),
    operator("roll", lambda x: x.roll(3, 1), TOKENS),
    operator("roll2", lambda x: x.view(64, 16, 8, 256).roll((-3, -3), (1, 2)), TOKENS),
    operator("repeat", lambda x: x.repeat(1, 2, 1), TOKENS),
    operator("repeat_interleave", lambda x: x.repeat_interleave(2, 1), TOKENS),
    operator("expand", lambda x: x.expand(64, 128, 256) * 2, (64, 1, 256)),
    operator("tile", lambda x: x.tile(2, 1, 1), TOKENS),
    operator("pad", lambda x: F.pad(x, (1, 1, 2, 2)), TOKENS),
    operator("pad_reflect", lambda x: F.pad(x, (1, 1), mode="reflect"), TOKENS),
    operator("pad_repl", lambda x: F.pad(x, (1, 1), mode="replicate"), TOKENS),
    operator("transpose_c", lambda x: x.transpose(1, 2).contiguous(), TOKENS),
    operator("permute_r", lambda x: x.permute(2, 0, 1).reshape(256, -1), TOKENS),
    operator("tril", lambda x: x.tril(), TOKENS),
    operator("triu", lambda x: x.triu(1), TOKENS),
    operator("diagonal", lambda x: x.diagonal(0, 1, 2), TOKENS),
    operator("unfold", lambda x: x.unfold(1, 8, 4) * 2, TOKENS),
    operator("F_unfold", lambda x: F.unfold(x, 3, padding=1), (8, 16, 32, 32)),
    operator("F_fold", lambda x: F.fold(x, (32, 32), 3, padding=1), (8, 144, 1024)),
    operator("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (8, 64, 16, 16)),
    operator(
        "einsum_bhid",
        lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
        (4, 8, 64, 32),
        (4, 8, 64, 32),
        autocast=True,
        halves=True,
    ),
    operator("einsum_ijk", lambda a, b: torch.einsum("bnd,de->bne", a, b), TOKENS, (256, 64), autocast=True),
    operator(
        "einsum_o", lambda a, b: torch.einsum("...i,oi->...o", a, b), TOKENS, (64, 256), autocast=True, halves=True
    ),
    operator("einsum_vec", lambda a, b: torch.einsum("bnd,bd->bn", a, b), TOKENS, (64, 256)),
    operator("einsum_3", lambda a, b, c: torch.einsum("bi,bj,bk->bijk", a, b, c), (8, 16), (8, 16), (8, 16)),
    operator("outer", lambda a, b: torch.outer(a, b), (512,), (512,)),
    operator("dot", torch.dot, (512,), (512,)),
    operator("mv", torch.mv, (512, 256), (256,)),
)

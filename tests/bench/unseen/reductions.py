"""Sums and their kin over each dimension, sorts and selections."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from unseen.operators import TOKENS, indices, operator

_OVER_A_DIMENSION = [
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "std",
    "var",
    "logsumexp",
    "softmax",
    "log_softmax",
    "cumsum",
    "cumprod",
]


def _over(name: str, dim: int) -> Any:
    return lambda x: getattr(torch, name)(x, dim)


PROGRAMS = (
    *(operator(f"{name}_last", _over(name, -1), TOKENS, halves=True) for name in _OVER_A_DIMENSION),
    *(operator(f"{name}_first", _over(name, 0), TOKENS) for name in _OVER_A_DIMENSION),
    *(operator(f"{name}_mid", _over(name, 1), TOKENS) for name in _OVER_A_DIMENSION),
    operator("sum_all", torch.sum, TOKENS),
    operator("mean_all", torch.mean, TOKENS, halves=True),
    operator("max_all", torch.max, TOKENS),
    operator("norm_all", torch.norm, TOKENS),
    operator("norm_dim", lambda x: x.norm(dim=-1), TOKENS),
    operator("norm_keep", lambda x: x / x.norm(dim=-1, keepdim=True), TOKENS),
    operator("normalize", lambda x: F.normalize(x, dim=-1), TOKENS, autocast=True, halves=True),
    operator("var_all", torch.var, TOKENS),
    operator("std_all", torch.std, TOKENS),
    operator("sum_big", lambda x: x.sum(0), (8192, 1024), halves=True),
    operator("sum_bf32", lambda x: x.sum(0, dtype=torch.float32), (8192, 1024), halves=True),
    operator("max_dim", lambda x: x.max(-1)[0], TOKENS),
    operator("max_dim0", lambda x: x.max(0)[0], TOKENS),
    operator("min_keep", lambda x: x.min(-1, keepdim=True).values, TOKENS),
    operator("median", lambda x: x.median(-1)[0], TOKENS),
    operator("topk", lambda x: x.topk(8, -1)[0], TOKENS, halves=True),
    operator("topk_big", lambda x: x.topk(50, -1)[0], (16, 50000)),
    operator("topk1", lambda x: x.topk(2, -1)[0], (4096, 8)),
    operator("sort", lambda x: x.sort(-1)[0], TOKENS),
    operator("sort_small", lambda x: x.sort(-1)[0], (64, 64)),
    operator("sort_long", lambda x: x.sort(-1)[0], (4, 20000)),
    operator("sort1d", lambda x: x.sort()[0], (100000,)),
    operator("argsort", lambda x: x[x.argsort()], (100000,)),
    operator("kthvalue", lambda x: x.kthvalue(3, -1)[0], TOKENS),
    operator("argmax", lambda x: x * (x.argmax(-1, keepdim=True) > 3), TOKENS),
    operator("cummax", lambda x: x.cummax(-1)[0], TOKENS),
    operator("logcumsumexp", lambda x: x.logcumsumexp(-1), TOKENS),
    operator("cumsum_int", lambda x, i: x * i.cumsum(-1), TOKENS, indices(4, *TOKENS)),
    operator("cumsum1d", lambda x: x.cumsum(0), (1000000,)),
)

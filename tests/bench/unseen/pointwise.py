"""Elementwise operators, broadcast ones among them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from unseen.operators import TOKENS, operator

_ONE_ARGUMENT = [
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "sin",
    "cos",
    "erf",
    "softplus",
    "elu",
    "leaky_relu",
    "hardtanh",
    "mish",
    "selu",
    "celu",
    "logsigmoid",
    "hardswish",
    "hardsigmoid",
    "softsign",
    "tanhshrink",
    "relu6",
    "glu",
]

PROGRAMS = (
    *(operator(name, getattr(F, name, None) or getattr(torch, name), TOKENS) for name in _ONE_ARGUMENT),
    operator("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), TOKENS),
    operator("pow2", lambda x: x.pow(2), TOKENS),
    operator("pow3", lambda x: x**3, TOKENS),
    operator("powt", lambda x: x**2.5, TOKENS),
    operator("clamp", lambda x: x.clamp(0, 1), TOKENS),
    operator("clamp_min", lambda x: x.clamp(min=0), TOKENS),
    operator("mul", lambda a, b: a * b, TOKENS, TOKENS),
    operator("mulb", lambda a, b: a * b, TOKENS, (256,)),
    operator("addb", lambda a, b: a + b, TOKENS, (256,)),
    operator("addb3", lambda a, b: a + b, TOKENS, (64, 1, 256)),
    operator("div", lambda a, b: a / b, TOKENS, TOKENS),
    operator("divb", lambda a, b: a / b, TOKENS, (256,)),
    operator("sub", lambda a, b: a - b, TOKENS, (128, 256)),
    operator("where", lambda a, b: torch.where(a > 0, a, b), TOKENS, TOKENS),
    operator("wheres", lambda a: torch.where(a > 0, a, float("-inf")), TOKENS),
    operator("masked_fill", lambda a: a.masked_fill(a > 0, 0.0), TOKENS),
    operator("masked_fill_", lambda a: (a * 1).masked_fill_(a > 0, 0.0), TOKENS),
    operator("maximum", torch.maximum, TOKENS, TOKENS),
    operator("minimum", torch.minimum, TOKENS, (256,)),
    operator("lerp", lambda a, b: torch.lerp(a, b, 0.1), TOKENS, TOKENS),
    operator("addcmul", lambda a, b, c: torch.addcmul(a, b, c), TOKENS, TOKENS, TOKENS),
)

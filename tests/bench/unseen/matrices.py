"""Matrix products and linear algebra."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from unseen.operators import CUDA, TOKENS, indices, operator

PROGRAMS = (
    operator("mm", torch.mm, (512, 256), (256, 512), autocast=True, halves=True),
    operator("matmul3", torch.matmul, TOKENS, (256, 512), autocast=True, halves=True),
    operator("matmul4", torch.matmul, (4, 8, 64, 32), (4, 8, 32, 64), autocast=True, halves=True),
    operator("matmul4t", lambda a, b: a @ b.transpose(-1, -2), (4, 8, 64, 32), (4, 8, 64, 32), autocast=True),
    operator("matmulb", torch.matmul, (4, 8, 64, 32), (8, 32, 64), autocast=True),
    operator("bmm", torch.bmm, (8, 64, 32), (8, 32, 64), autocast=True),
    operator("baddbmm", torch.baddbmm, (8, 64, 64), (8, 64, 32), (8, 32, 64), autocast=True),
    operator("addmm", torch.addmm, (64,), (128, 32), (32, 64), autocast=True),
    operator("addmm2", torch.addmm, (128, 64), (128, 32), (32, 64)),
    operator("linear2", F.linear, (512, 256), (64, 256), (64,), autocast=True, halves=True),
    operator("linear3", F.linear, TOKENS, (512, 256), (512,), autocast=True, halves=True),
    operator("linear3nb", F.linear, TOKENS, (512, 256), autocast=True, halves=True),
    operator("linear4", F.linear, (4, 8, 16, 64), (32, 64), (32,), autocast=True, halves=True),
    operator(
        "linear_t", lambda x, w, b: F.linear(x.transpose(1, 2), w, b), (64, 256, 128), (512, 256), (512,), autocast=True
    ),
    operator("linear1", F.linear, (256,), (64, 256), (64,)),
    operator("linear_out1", F.linear, (512, 256), (1, 256), (1,), autocast=True),
    operator("linear_in1", F.linear, (512, 1), (64, 1), (64,), autocast=True),
    operator("linear_relu", lambda x, w, b: F.relu(F.linear(x, w, b)), (512, 256), (64, 256), (64,), autocast=True),
    operator(
        "linear_gelu",
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (512, 256),
        (64, 256),
        (64,),
        autocast=True,
        halves=True,
    ),
    operator("bilinear", F.bilinear, (128, 32), (128, 64), (16, 32, 64), (16,)),
    operator("cdist", torch.cdist, (4, 64, 32), (4, 128, 32)),
    operator("linear_slice", lambda x, w, b: F.linear(x[:, 0], w, b), TOKENS, (64, 256), (64,), autocast=True),
    operator(
        "linear_expand",
        lambda x, w, b: F.linear(x.expand(64, -1, -1), w, b),
        (1, 16, 256),
        (64, 256),
        (64,),
        autocast=True,
    ),
    operator("linalg_inv", lambda x: torch.linalg.inv(x), (8, 32, 32)),
    operator("cholesky", lambda x: torch.linalg.cholesky(x), (8, 32, 32)),
    operator("logdet", lambda x: torch.logdet(x), (8, 32, 32)),
    operator("svd", lambda x: torch.linalg.svd(x)[1], (8, 32, 32)),
    operator("solve", lambda a, b: torch.linalg.solve(a, b), (8, 32, 32), (8, 32, 4)),
    operator("matrix_norm", lambda x: torch.linalg.norm(x), (512, 256)),
    operator("trace", lambda x: torch.trace(x), (64, 64)),
    operator("cross", lambda a, b: torch.linalg.cross(a, b), (512, 3), (512, 3)),
    operator("cov", lambda x: torch.cov(x), (64, 512)),
    operator("renorm", lambda x: x.renorm(2, 0, 1.0), TOKENS),
    operator(
        "searchsorted",
        lambda x: x * torch.searchsorted(torch.arange(10.0, device=CUDA), x.detach()).clamp(max=3),
        TOKENS,
    ),
    operator("bincount", lambda x, i: x * torch.bincount(i, minlength=100)[:64], (64,), indices(100, 1000)),
    operator("unique", lambda x, i: x[: torch.unique(i).numel() + 1], (64,), indices(100, 1000)),
)

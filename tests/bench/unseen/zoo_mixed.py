"""Models of detection, pairs, diffusion and audio."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class SetDetector(nn.Module):
    """A convolutional stem, a transformer, and queries for objects."""

    def __init__(self, d=128):
        super().__init__()
        self.b = nn.Sequential(
            nn.Conv2d(3, 64, 7, 4, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(64, d, 3, 2, 1)
        )
        self.t = nn.Transformer(d, 8, 2, 2, 512, batch_first=True)
        self.q = nn.Parameter(torch.rand(50, d))
        self.c = nn.Linear(d, 21)
        self.bx = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))
        self.pos = nn.Parameter(torch.rand(1, 64, d))

    def forward(self, x):
        f = self.b(x).flatten(2).transpose(1, 2)
        f = f + self.pos[:, : f.shape[1]]
        h = self.t(f, self.q.expand(x.shape[0], -1, -1))
        return (self.c(h), self.bx(h).sigmoid())


class ImageText(nn.Module):
    """Two encoders whose outputs are compared."""

    def __init__(self, d=192):
        super().__init__()
        self.p = nn.Conv2d(3, d, 16, 16)
        self.v = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 6, 4 * d, activation="gelu", batch_first=True, norm_first=True),
            3,
            enable_nested_tensor=False,
        )
        self.e = nn.Embedding(5000, d)
        self.x = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 6, 4 * d, activation="gelu", batch_first=True), 3)
        self.a = nn.Linear(d, 128)
        self.b = nn.Linear(d, 128)
        self.t = nn.Parameter(torch.tensor(1.0))

    def forward(self, im, t):
        a = F.normalize(self.a(self.v(self.p(im).flatten(2).transpose(1, 2)).mean(1)), dim=-1)
        m = nn.Transformer.generate_square_subsequent_mask(t.shape[1], device=t.device)
        b = F.normalize(self.b(self.x(self.e(t), mask=m)[:, -1]), dim=-1)
        return self.t.exp() * a @ b.t()


class ResidualConvolution(nn.Module):
    """Two convolutions with a time embedding between."""

    def __init__(self, i, o, te):
        super().__init__()
        self.n1 = nn.GroupNorm(8, i)
        self.c1 = nn.Conv2d(i, o, 3, padding=1)
        self.t = nn.Linear(te, o)
        self.n2 = nn.GroupNorm(8, o)
        self.c2 = nn.Conv2d(o, o, 3, padding=1)
        self.k = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.k(x) + self.c2(F.dropout(F.silu(self.n2(h)), 0.1))


class PixelAttention(nn.Module):
    """Attention over pixels by einsum."""

    def __init__(self, c):
        super().__init__()
        self.n = nn.GroupNorm(8, c)
        self.q = nn.Conv1d(c, 3 * c, 1)
        self.o = nn.Conv1d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.q(self.n(x).view(b, c, -1)).reshape(b * 4, 3 * c // 4, -1).chunk(3, 1)
        a = (
            torch.einsum("bct,bcs->bts", q * (c // 4) ** (-0.25), k * (c // 4) ** (-0.25))
            .float()
            .softmax(-1)
            .to(x.dtype)
        )
        return x + self.o(torch.einsum("bts,bcs->bct", a.to(v.dtype), v).reshape(b, c, -1)).view(b, c, h, w)


class Denoiser(nn.Module):
    """A small U-Net for diffusion."""

    def __init__(self, d=64):
        super().__init__()
        self.i = nn.Conv2d(3, d, 3, padding=1)
        self.t = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, 4 * d))
        self.d1 = ResidualConvolution(d, d, 4 * d)
        self.d2 = ResidualConvolution(d, 2 * d, 4 * d)
        self.a2 = PixelAttention(2 * d)
        self.dn = nn.Conv2d(d, d, 3, 2, 1)
        self.m = ResidualConvolution(2 * d, 2 * d, 4 * d)
        self.u2 = ResidualConvolution(4 * d, d, 4 * d)
        self.u1 = ResidualConvolution(2 * d, d, 4 * d)
        self.o = nn.Conv2d(d, 3, 3, padding=1)
        self.dd = d

    def forward(self, x, t):
        f = torch.exp(-math.log(10000.0) * torch.arange(self.dd // 2, device=x.device) / (self.dd // 2))
        a = t.float()[:, None] * f
        t = self.t(torch.cat([a.cos(), a.sin()], -1))
        h1 = self.d1(self.i(x), t)
        h2 = self.a2(self.d2(self.dn(h1), t))
        h = self.m(h2, t)
        h = self.u2(torch.cat([h, h2], 1), t)
        h = F.interpolate(h, scale_factor=2.0, mode="nearest")
        return self.o(F.silu(self.u1(torch.cat([h, h1], 1), t)))


class DilatedAudio(nn.Module):
    """Gated dilated convolutions over audio."""

    def __init__(self, c=64, L=8):
        super().__init__()
        self.i = nn.Conv1d(1, c, 1)
        self.f = nn.ModuleList(nn.Conv1d(c, 2 * c, 2, dilation=2**i) for i in range(L))
        self.r = nn.ModuleList(nn.Conv1d(c, 2 * c, 1) for _ in range(L))
        self.o = nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 256, 1))

    def forward(self, x):
        x = self.i(x)
        k = 0
        for f, r in zip(self.f, self.r, strict=True):
            a, b = f(F.pad(x, (f.dilation[0], 0))).chunk(2, 1)
            y, sk = r(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x = x + y
            k = k + sk
        return self.o(k)


class SpeechEncoder(nn.Module):
    """Convolutions and a transformer over speech."""

    def __init__(self, d=192):
        super().__init__()
        self.f = nn.ModuleList(
            (
                nn.Conv1d(1 if i == 0 else 64, 64, k, st, bias=False)
                for i, (k, st) in enumerate([(10, 5), (3, 2), (3, 2), (3, 2)])
            )
        )
        self.gn = nn.GroupNorm(64, 64)
        self.p = nn.Linear(64, d)
        self.ps = nn.Conv1d(d, d, 16, padding=8, groups=4)
        self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 4 * d, activation="gelu", batch_first=True), 3)
        self.h = nn.Linear(d, 32)

    def forward(self, x):
        x = x[:, None]
        for i, f in enumerate(self.f):
            x = f(x)
            x = F.gelu(self.gn(x) if i == 0 else x)
        x = self.p(x.transpose(1, 2))
        x = x + F.gelu(self.ps(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
        return self.h(self.t(x))

"""Models of images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class ShiftedWindows(nn.Module):
    """Attention in shifted windows with a table of relative positions."""

    def __init__(self, d=96, W=7, H=3):
        super().__init__()
        self.p = nn.Conv2d(3, d, 4, 4)
        self.W, self.H = (W, H)
        self.bl = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(d),
                    "q": nn.Linear(d, 3 * d),
                    "o": nn.Linear(d, d),
                    "n2": nn.LayerNorm(d),
                    "m": nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)),
                }
            )
            for _ in range(4)
        )
        self.t = nn.Parameter(torch.zeros((2 * W - 1) ** 2, H))
        self.register_buffer("ri", torch.randint(0, (2 * W - 1) ** 2, (W * W, W * W)))
        self.mg = nn.Linear(4 * d, 2 * d, bias=False)
        self.mn = nn.LayerNorm(4 * d)
        self.h = nn.Linear(2 * d, 100)

    def forward(self, x):
        x = self.p(x).permute(0, 2, 3, 1)
        B, Hh, Ww, C = x.shape
        W = self.W
        for k, b in enumerate(self.bl):
            y = b["n1"](x)
            if k % 2:
                y = torch.roll(y, (-3, -3), (1, 2))
            y = y.view(B, Hh // W, W, Ww // W, W, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, W * W, C)
            q, kk, v = b["q"](y).reshape(-1, W * W, 3, self.H, C // self.H).permute(2, 0, 3, 1, 4)
            a = q * (C // self.H) ** (-0.5) @ kk.transpose(-2, -1)
            a = a + self.t[self.ri.view(-1)].view(W * W, W * W, -1).permute(2, 0, 1).unsqueeze(0)
            y = (F.dropout(a.softmax(-1), 0.1, self.training) @ v).transpose(1, 2).reshape(-1, W * W, C)
            y = b["o"](y).view(B, Hh // W, Ww // W, W, W, C).permute(0, 1, 3, 2, 4, 5).reshape(B, Hh, Ww, C)
            if k % 2:
                y = torch.roll(y, (3, 3), (1, 2))
            x = x + y
            x = x + b["m"](b["n2"](x))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.h(self.mg(self.mn(x)).mean((1, 2)))


class Autoencoder(nn.Module):
    """A convolutional variational autoencoder."""

    def __init__(self):
        super().__init__()
        self.e = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.BatchNorm2d(64),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.m = nn.Linear(64 * 256, 64)
        self.v = nn.Linear(64 * 256, 64)
        self.f = nn.Linear(64, 64 * 256)
        self.d = nn.Sequential(
            nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        h = self.e(x)
        m, v = (self.m(h), self.v(h))
        z = m + torch.randn_like(m) * (v / 2).exp()
        return (self.d(self.f(z).view(-1, 64, 16, 16)), m, v)


class InvertedBottlenecks(nn.Module):
    """Depthwise convolutions with squeeze and excitation."""

    def __init__(self, cs=((32, 16), (16, 24), (24, 40), (40, 80))):
        super().__init__()
        self.st = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU())
        self.bl = nn.ModuleList()
        for i, o in cs:
            e = 6 * i
            self.bl.append(
                nn.ModuleDict(
                    {
                        "a": nn.Sequential(
                            nn.Conv2d(i, e, 1, bias=False),
                            nn.BatchNorm2d(e),
                            nn.SiLU(inplace=True),
                            nn.Conv2d(e, e, 3, 2, 1, groups=e, bias=False),
                            nn.BatchNorm2d(e),
                            nn.SiLU(inplace=True),
                        ),
                        "s": nn.Sequential(
                            nn.AdaptiveAvgPool2d(1),
                            nn.Conv2d(e, i // 4, 1),
                            nn.SiLU(),
                            nn.Conv2d(i // 4, e, 1),
                            nn.Sigmoid(),
                        ),
                        "p": nn.Sequential(nn.Conv2d(e, o, 1, bias=False), nn.BatchNorm2d(o)),
                    }
                )
            )
        self.h = nn.Sequential(nn.Dropout(0.2), nn.Linear(80, 100))

    def forward(self, x):
        x = self.st(x)
        for b in self.bl:
            y = b["a"](x)
            x = b["p"](y * b["s"](y))
        return self.h(x.mean((2, 3)))


class DenselyConnected(nn.Module):
    """Every layer sees all before it; checkpointed concatenations."""

    def __init__(self, g=24, ck=True):
        super().__init__()
        self.i = nn.Conv2d(3, 48, 3, 2, 1, bias=False)
        self.n = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(48 + g * i), nn.ReLU(inplace=True), nn.Conv2d(48 + g * i, 4 * g, 1, bias=False)
            )
            for i in range(8)
        )
        self.m = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 * g), nn.ReLU(inplace=True), nn.Conv2d(4 * g, g, 3, padding=1, bias=False))
            for _ in range(8)
        )
        self.h = nn.Linear(48 + 8 * g, 100)
        self.ck = ck

    def forward(self, x):
        fs = [self.i(x)]
        for a, b in zip(self.n, self.m, strict=True):

            def f(*z, a=a):
                return a(torch.cat(z, 1))

            y = checkpoint(f, *fs, use_reentrant=False) if self.ck else f(*fs)
            fs.append(F.dropout(b(y), 0.1))
        return self.h(F.adaptive_avg_pool2d(F.relu(torch.cat(fs, 1), inplace=True), 1).flatten(1))


class RadianceField(nn.Module):
    """A field of colours integrated along rays."""

    def __init__(self, d=128):
        super().__init__()
        self.l = nn.ModuleList([nn.Linear(39, d)] + [nn.Linear(d + (39 if i == 2 else 0), d) for i in range(4)])
        self.o = nn.Linear(d, 4)

    def forward(self, x):
        e = torch.cat([x] + [f(2.0**k * x) for k in range(6) for f in (torch.sin, torch.cos)], -1)
        h = e
        for i, layer in enumerate(self.l):
            h = F.relu(layer(torch.cat([h, e], -1) if i == 3 else h))
        o = self.o(h)
        sg = F.relu(o[..., 3])
        al = 1 - torch.exp(-sg * 0.01)
        w = al * torch.cumprod(torch.cat([torch.ones_like(al[:, :1]), 1 - al + 1e-10], -1), -1)[:, :-1]
        return (w[..., None] * o[..., :3].sigmoid()).sum(1)

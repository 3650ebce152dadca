"""Models of text."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class StateSpace(nn.Module):
    """A selective state space, scanned in Python."""

    def __init__(self, d=128, n=8, L=3, V=1000):
        super().__init__()
        self.e = nn.Embedding(V, d)
        self.bl = nn.ModuleList(
            nn.ModuleDict(
                {
                    "i": nn.Linear(d, 4 * d),
                    "c": nn.Conv1d(2 * d, 2 * d, 4, padding=3, groups=2 * d),
                    "x": nn.Linear(2 * d, 2 * n + 16),
                    "dt": nn.Linear(16, 2 * d),
                    "o": nn.Linear(2 * d, d),
                    "n": nn.LayerNorm(d),
                }
            )
            for _ in range(L)
        )
        self.A = nn.ParameterList(nn.Parameter(torch.rand(2 * d, n)) for _ in range(L))
        self.h = nn.Linear(d, V)
        self.nn = n

    def forward(self, t):
        x = self.e(t)
        for b, A in zip(self.bl, self.A, strict=True):
            r = x
            x = b["n"](x)
            u, z = b["i"](x).chunk(2, -1)
            T = u.shape[1]
            u = F.silu(b["c"](u.transpose(1, 2))[..., :T].transpose(1, 2))
            p = b["x"](u)
            dt, B, C = p.split([16, self.nn, self.nn], -1)
            dt = F.softplus(b["dt"](dt))
            dA = torch.exp(dt.unsqueeze(-1) * -torch.exp(A))
            dB = dt.unsqueeze(-1) * B.unsqueeze(2) * u.unsqueeze(-1)
            h = torch.zeros_like(dA[:, 0])
            ys = []
            for i in range(T):
                h = dA[:, i] * h + dB[:, i]
                ys.append((h * C[:, i, None]).sum(-1))
            x = r + b["o"](torch.stack(ys, 1) * F.silu(z))
        return self.h(x)


class SortedExperts(nn.Module):
    """A mixture of experts whose tokens are sorted by expert."""

    def __init__(self, d=256, E=4, V=2000):
        super().__init__()
        self.e = nn.Embedding(V, d)
        self.g = nn.Linear(d, E, bias=False)
        self.ex = nn.ModuleList(nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)) for _ in range(E))
        self.a = nn.MultiheadAttention(d, 8, batch_first=True)
        self.h = nn.Linear(d, V)

    def forward(self, t):
        x = self.e(t)
        x = x + self.a(x, x, x, need_weights=False)[0]
        f = x.reshape(-1, x.shape[-1])
        w, i = self.g(f).softmax(-1).topk(2, -1)
        w = w / w.sum(-1, keepdim=True)
        N, E = (f.shape[0], len(self.ex))
        cap = N * 2 // E
        flat = i.reshape(-1)
        order = flat.argsort()
        src = order // 2
        y = torch.zeros_like(f)
        for k, ex in enumerate(self.ex):
            idx = src[k * cap : (k + 1) * cap]
            y = y.index_add(0, idx, (ex(f[idx]) * w.reshape(-1)[order[k * cap : (k + 1) * cap], None]).to(y.dtype))
        return self.h((f + y).view_as(x))


class RelativeBias(nn.Module):
    """A transformer with learned relative position buckets."""

    def __init__(self, d=256, H=4, V=4000):
        super().__init__()
        self.e = nn.Embedding(V, d)
        self.rb = nn.Embedding(32, H)
        self.bl = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n": nn.RMSNorm(d),
                    "q": nn.Linear(d, 3 * d, bias=False),
                    "o": nn.Linear(d, d, bias=False),
                    "n2": nn.RMSNorm(d),
                    "a": nn.Linear(d, 2 * d, bias=False),
                    "b": nn.Linear(d, 2 * d, bias=False),
                    "c": nn.Linear(2 * d, d, bias=False),
                }
            )
            for _ in range(3)
        )
        self.H = H
        self.n = nn.RMSNorm(d)

    def forward(self, t):
        x = F.dropout(self.e(t), 0.1)
        T = t.shape[1]
        p = torch.arange(T, device=t.device)
        r = p[None] - p[:, None]
        lg = 16 + (torch.log(r.abs().float().clamp(min=1) / 8) / math.log(16) * 8).long()
        bk = torch.where(r.abs() < 16, r.abs(), lg).clamp(max=31)
        pb = self.rb(bk).permute(2, 0, 1)[None]
        for b in self.bl:
            B, _, d = x.shape
            q, k, v = b["q"](b["n"](x)).view(B, T, 3, self.H, -1).permute(2, 0, 3, 1, 4)
            sc = q @ k.transpose(-1, -2) + pb
            a = F.dropout(F.softmax(sc.float(), -1).type_as(sc), 0.1)
            x = x + F.dropout(b["o"]((a @ v).transpose(1, 2).reshape(B, T, d)), 0.1)
            y = b["n2"](x)
            x = x + F.dropout(b["c"](F.gelu(b["a"](y), approximate="tanh") * b["b"](y)), 0.1)
        return self.n(x) * x.shape[-1] ** (-0.5) @ self.e.weight.t()


class GroupedDecoder(nn.Module):
    """A decoder with rotary positions and fewer heads of keys."""

    def __init__(self, d=256, H=8, K=2, L=4, V=8000, ck=False):
        super().__init__()
        self.e = nn.Embedding(V, d)
        hd = d // H
        self.bl = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n": nn.RMSNorm(d),
                    "q": nn.Linear(d, H * hd, bias=False),
                    "k": nn.Linear(d, K * hd, bias=False),
                    "v": nn.Linear(d, K * hd, bias=False),
                    "o": nn.Linear(d, d, bias=False),
                    "n2": nn.RMSNorm(d),
                    "g": nn.Linear(d, 3 * d, bias=False),
                    "u": nn.Linear(d, 3 * d, bias=False),
                    "w": nn.Linear(3 * d, d, bias=False),
                }
            )
            for _ in range(L)
        )
        self.n = nn.RMSNorm(d)
        self.h = nn.Linear(d, V, bias=False)
        self.H, self.K, self.ck = (H, K, ck)
        f = 10000.0 ** (-(torch.arange(0, hd, 2) / hd))
        self.register_buffer("c", torch.outer(torch.arange(512), f).cos().repeat(1, 2))
        self.register_buffer("sn", torch.outer(torch.arange(512), f).sin().repeat(1, 2))

    def rope(self, x):
        T = x.shape[2]
        a, b = x.chunk(2, -1)
        return x * self.c[:T] + torch.cat((-b, a), -1) * self.sn[:T]

    def block(self, b, x):
        B, T, d = x.shape
        y = b["n"](x)
        q, k, v = (b[n](y).view(B, T, -1, d // self.H).transpose(1, 2) for n in "qkv")
        q, k = (self.rope(q).to(v.dtype), self.rope(k).to(v.dtype))
        r = self.H // self.K
        k, v = (z[:, :, None].expand(-1, -1, r, -1, -1).reshape(B, self.H, T, -1) for z in (k, v))
        x = x + b["o"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, d))
        y = b["n2"](x)
        return x + b["w"](F.silu(b["g"](y)) * b["u"](y))

    def forward(self, t):
        x = self.e(t)
        for b in self.bl:
            x = checkpoint(self.block, b, x, use_reentrant=False) if self.ck else self.block(b, x)
        return self.h(self.n(x))


class AttentiveTranslator(nn.Module):
    """A recurrent encoder, and a cell that attends to it."""

    def __init__(self, d=128, V=2000):
        super().__init__()
        self.e = nn.Embedding(V, d, padding_idx=0)
        self.r = nn.LSTM(d, d, batch_first=True, bidirectional=True)
        self.c = nn.LSTMCell(3 * d, d)
        self.a = nn.Linear(d, 2 * d)
        self.o = nn.Linear(3 * d, V)

    def forward(self, a, b):
        with torch.backends.cudnn.flags(enabled=False):
            m, _ = self.r(self.e(a))
        h = c = torch.zeros(a.shape[0], m.shape[-1] // 2, device=a.device)
        y = self.e(b)
        out = []
        ctx = m.mean(1)
        for t in range(b.shape[1]):
            h, c = self.c(torch.cat([y[:, t], ctx], -1), (h, c))
            w = torch.bmm(m, self.a(h).unsqueeze(2)).softmax(1)
            ctx = (w * m).sum(1)
            out.append(self.o(torch.cat([h, ctx], -1)))
        return torch.stack(out, 1)

"""Denoising diffusion: the exponential average shown in the progress line is made of losses with graphs."""

import math

import torch
from torch import nn


class TimeEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        args = t[:, None] * freqs[None]
        return self.mlp(torch.cat([args.sin(), args.cos()], -1))


class UNetish(nn.Module):
    def __init__(self, ch=32):
        super().__init__()
        self.emb = TimeEmbed(ch)
        self.inp, self.mid, self.out = (
            nn.Conv2d(1, ch, 3, padding=1),
            nn.Conv2d(ch, ch, 3, padding=1),
            nn.Conv2d(ch, 1, 3, padding=1),
        )

    def forward(self, x, t):
        h = torch.relu(self.inp(x)) + self.emb(t)[:, :, None, None]
        return self.out(torch.relu(self.mid(h)) + h)


betas = torch.linspace(1e-4, 0.02, 100)
alphas = torch.cumprod(1 - betas, 0)
model = UNetish()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
smooth = None
for it in range(40):
    x0, t = torch.randn(16, 1, 28, 28), torch.randint(0, 100, (16,))
    noise = torch.randn_like(x0)
    a = alphas[t].view(-1, 1, 1, 1)
    loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t.float()) - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss  # !MG101 smooth
    if it % 10 == 0:
        print(f"{it}: {smooth:.4f}")

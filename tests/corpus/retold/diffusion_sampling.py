"""A small diffusion model with an EMA copy and a sampling loop after each epoch."""

import copy

import torch
from torch import nn

T = 40
betas = torch.linspace(1e-4, 0.05, T)
alphas = torch.cumprod(1 - betas, 0)


class Eps(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None] / T], 1))


model = Eps()
ema = copy.deepcopy(model).eval().requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), 1e-3)


@torch.no_grad()
def sample(n):
    x = torch.randn(n, 2)
    for t in reversed(range(T)):
        eps = ema(x, torch.full((n,), float(t)))
        x = (x - betas[t] / (1 - alphas[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        x = x + betas[t].sqrt() * torch.randn_like(x) if t else x
    return x


for epoch in range(3):
    for _ in range(15):
        x0, t, noise = torch.randn(64, 2), torch.randint(T, (64,)), torch.randn(64, 2)
        xt = alphas[t].sqrt()[:, None] * x0 + (1 - alphas[t]).sqrt()[:, None] * noise
        loss = nn.functional.mse_loss(model(xt, t.float()), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters()):
                e.lerp_(p, 0.01)
    sample(32)

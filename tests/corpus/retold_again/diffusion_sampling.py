# MG201 by batch 10: each answer keeps the one before it, until eight of them tell a roll-out from a window.
"""Diffusion training with an EMA model: every few hundred steps a grid of samples is drawn, and because the sampling loop
is not under torch.no_grad the graph of all denoising steps is built; training itself fits, the sampling does not.
https://github.com/lucidrains/denoising-diffusion-pytorch/pull/75 , https://github.com/VisualComputingInstitute/diffusion-e2e-ft/issues/21
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DiffusionConfig:
    timesteps: int = 20
    channels: int = 16
    image_size: int = 16
    batch_size: int = 16
    steps: int = 60
    sample_every: int = 20
    ema_decay: float = 0.995


class Denoiser(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.temb = nn.Embedding(1000, ch)
        self.inp, self.mid, self.out = (
            nn.Conv2d(3, ch, 3, padding=1),
            nn.Conv2d(ch, ch, 3, padding=1),
            nn.Conv2d(ch, 3, 3, padding=1),
        )

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.temb(t)[:, :, None, None])
        return self.out(h + F.silu(self.mid(h)))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.lerp_(p, 1 - self.decay)


class GaussianDiffusion:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        betas = torch.linspace(1e-3, 0.2, cfg.timesteps)
        self.alphas = (1 - betas).to(device)
        self.abar = torch.cumprod(1 - betas, 0).to(device)

    def loss(self, model, x):
        t = torch.randint(0, self.cfg.timesteps, (len(x),)).to(self.device)
        a = self.abar[t][:, None, None, None]
        noise = torch.randn_like(x)
        return F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)

    def p_sample_loop(self, model, n):
        s = self.cfg.image_size
        img = torch.randn(n, 3, s, s, device=self.device)
        for i in reversed(range(self.cfg.timesteps)):
            t = torch.full((n,), i, device=self.device)
            eps = model(img, t)  # !MG201 Denoiser
            img = (img - (1 - self.alphas[i]) / (1 - self.abar[i]).sqrt() * eps) / self.alphas[i].sqrt()
        return img


if __name__ == "__main__":
    cfg = DiffusionConfig()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Denoiser(cfg.channels).to(device)
    ema, diffusion = EMA(model, cfg.ema_decay), GaussianDiffusion(cfg, device)
    opt = torch.optim.Adam(model.parameters(), 2e-4)
    for step in range(cfg.steps):
        x = torch.rand(cfg.batch_size, 3, cfg.image_size, cfg.image_size).to(device)
        opt.zero_grad()
        loss = diffusion.loss(model, x)
        loss.backward()
        opt.step()
        ema.update(model)
        if (step + 1) % cfg.sample_every == 0:
            print(step, loss.item(), "std of samples", diffusion.p_sample_loop(ema.model, 48).std().item())

"""Beta-VAE on synthetic 24x24 blobs with a capacity controller that adapts beta to a KL target."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    latent: int = 128
    hidden: int = 256
    batch: int = 256
    epochs: int = 10
    iters: int = 40
    warmup: int = 8  # epochs with a pure reconstruction objective
    kl_target: float = 12.0
    lr: float = 1e-3


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(576, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, 2 * cfg.latent))
        self.dec = nn.Sequential(nn.Linear(cfg.latent, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, 576))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


class CapacityController:
    """Integral controller: raises beta while the smoothed KL is above the target."""

    def __init__(self, target, gain=0.01, momentum=0.95):
        self.target, self.gain, self.momentum = target, gain, momentum
        self.smoothed = 0.0
        self.beta = 0.0

    def observe(self, kl):
        self.smoothed = self.momentum * self.smoothed + (1 - self.momentum) * kl  # !MG101 CapacityController.smoothed
        return self.smoothed

    def end_epoch(self, active):
        if active:
            err = float(self.smoothed) - self.target
            self.beta = min(4.0, max(0.0, self.beta + self.gain * err))


def blobs(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij")
    c = torch.rand(n, 2, 1, 1) * 1.4 - 0.7
    r = torch.rand(n, 1, 1) * 0.2 + 0.1
    return torch.exp(-((xx - c[:, 0]) ** 2 + (yy - c[:, 1]) ** 2) / r**2).flatten(1)


def train_batch(model, opt, ctl, x):
    opt.zero_grad()
    recon, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(recon, x, reduction="sum") / x.size(0)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    loss = rec
    if ctl.beta > 0:
        loss = loss + ctl.beta * kl
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    ctl.observe(kl)
    return rec.item(), kl.item()


@torch.no_grad()
def reconstruct_error(model, x):
    model.eval()
    out = torch.sigmoid(model(x)[0])
    model.train()
    return (out - x).abs().mean().item()


def main(cfg=Config()):
    torch.manual_seed(1)
    model, held_out = VAE(cfg), blobs(128)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    ctl = CapacityController(cfg.kl_target)
    for epoch in range(cfg.epochs):
        rec_sum = kl_sum = 0.0
        for _ in range(cfg.iters):
            rec, kl = train_batch(model, opt, ctl, blobs(cfg.batch))
            rec_sum += rec
            kl_sum += kl
        ctl.end_epoch(epoch >= cfg.warmup)
        print(
            f"[{epoch}] rec {rec_sum / cfg.iters:.2f} kl {kl_sum / cfg.iters:.2f} "
            f"beta {ctl.beta:.3f} mae {reconstruct_error(model, held_out):.4f}"
        )


main()

"""Meta-learned initialisation of a coordinate network (SIREN) for fast image regression."""

import copy
import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    meta_steps: int = 80
    inner_steps: int = 2
    inner_lr: float = 1e-2
    outer_lr: float = 5e-4
    side: int = 32
    width: int = 96
    depth: int = 3


class Sine(nn.Module):
    def __init__(self, w0=20.0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)


def siren(cfg):
    layers, d = [], 2
    for _ in range(cfg.depth):
        lin = nn.Linear(d, cfg.width)
        bound = math.sqrt(6 / d) / 20.0 if d != 2 else 0.5
        nn.init.uniform_(lin.weight, -bound, bound)
        layers += [lin, Sine()]
        d = cfg.width
    return nn.Sequential(*layers, nn.Linear(d, 1))


def coordinates(side):
    r = torch.linspace(-1, 1, side)
    return torch.stack(torch.meshgrid(r, r, indexing="ij"), -1).reshape(-1, 2)


def sample_image(coords):
    centre, radius = torch.rand(2) - 0.5, 0.2 + 0.4 * torch.rand(1)
    return ((coords - centre).norm(dim=-1, keepdim=True) < radius).float()


def adapt(learner, coords, target, cfg):
    """A few gradient steps on one image; curvature correction from the second derivative."""
    for _ in range(cfg.inner_steps):
        learner.zero_grad()
        loss = ((learner(coords) - target) ** 2).mean()
        loss.backward(create_graph=True)  # !MG104 -
        params = list(learner.parameters())
        norm = sum((p.grad**2).sum() for p in params)
        hvp = torch.autograd.grad(norm, params)
        with torch.no_grad():
            for p, h in zip(params, hvp):
                p -= cfg.inner_lr * (p.grad + 0.5 * cfg.inner_lr * h)
    return loss.item()


def meta_step(meta, optimizer, coords, cfg):
    target = sample_image(coords)
    learner = copy.deepcopy(meta)
    loss = adapt(learner, coords, target, cfg)
    with torch.no_grad():
        for p, q in zip(meta.parameters(), learner.parameters()):
            p.grad = (p - q) / cfg.inner_lr
    optimizer.step()
    optimizer.zero_grad()
    return loss


def main():
    cfg = Config()
    torch.manual_seed(0)
    coords = coordinates(cfg.side)
    meta = siren(cfg)
    optimizer = torch.optim.Adam(meta.parameters(), cfg.outer_lr)
    running = None
    for step in range(cfg.meta_steps):
        loss = meta_step(meta, optimizer, coords, cfg)
        running = loss if running is None else 0.9 * running + 0.1 * loss
        if step % 10 == 0:
            print(f"meta step {step:4d}  inner loss {running:.4f}")


if __name__ == "__main__":
    main()

"""Evolution strategies under no_grad: a population of perturbed weights, no backward at all."""

import copy

import torch
from torch import nn

center = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
x, y = torch.randn(64, 4), torch.randn(64, 2)
best = []
with torch.no_grad():
    for generation in range(25):
        noises, scores = [], []
        for _ in range(8):
            child = copy.deepcopy(center)
            noise = [torch.randn_like(p) * 0.05 for p in child.parameters()]
            for p, n in zip(child.parameters(), noise):
                p.add_(n)
            noises.append(noise)
            scores.append(-(child(x) - y).pow(2).mean())
        ranks = torch.stack(scores).argsort().argsort().float() - 3.5
        for i, p in enumerate(center.parameters()):
            p.add_(sum(r * noise[i] for r, noise in zip(ranks, noises)) * 0.05)
        best.append(max(scores).item())

"""Evaluation that needs gradients: robust accuracy under FGSM, and forces from an energy."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 3))
energy = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 1))
opt = torch.optim.Adam([*net.parameters(), *energy.parameters()])


def robust_accuracy(batches):
    net.eval()
    hits = 0
    for x, y in batches:
        x = x.clone().requires_grad_(True)
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), x)
        with torch.no_grad():
            hits += (net(x + 0.1 * g.sign()).argmax(1) == y).sum().item()
    return hits


def force_error(batches):
    energy.eval()
    err = 0.0
    for x in batches:
        x = x.clone().requires_grad_(True)
        forces = -torch.autograd.grad(energy(x).sum(), x)[0]
        err += forces.abs().mean().item()
    return err


for epoch in range(3):
    net.train()
    energy.train()
    for _ in range(10):
        x, y, pos = torch.randn(16, 12), torch.randint(3, (16,)), torch.randn(16, 9)
        loss = nn.functional.cross_entropy(net(x), y) + energy(pos).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    robust_accuracy([(torch.randn(16, 12), torch.randint(3, (16,))) for _ in range(6)])
    force_error(torch.randn(6, 16, 9))

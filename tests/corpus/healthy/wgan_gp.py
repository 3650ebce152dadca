"""WGAN-GP: several critic steps, the gradient penalty differentiates twice."""

import torch
from torch import autograd, nn


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


G, D = mlp(8, 64, 32), mlp(32, 64, 1)
opt_g = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), 1e-4, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = D(mixed)
    (grad,) = autograd.grad(scores, mixed, torch.ones_like(scores), create_graph=True, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


for it in range(20):
    for _ in range(3):
        real = torch.randn(16, 32)
        fake = G(torch.randn(16, 8)).detach()
        loss_d = D(fake).mean() - D(real).mean() + 10 * gradient_penalty(real, fake)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    loss_g = -D(G(torch.randn(16, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

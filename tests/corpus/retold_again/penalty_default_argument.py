"""WGAN-GP; the penalties are remembered in a default argument."""

import torch
from torch import autograd, nn

Z = 16
G = nn.Sequential(nn.Linear(Z, 48), nn.ReLU(), nn.Linear(48, 2))
D = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
opt_g = torch.optim.Adam(G.parameters(), 1e-4, (0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), 1e-4, (0.5, 0.9))


def gradient_penalty(real, fake, weight=10.0, trace=[]):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    out = D(mix)
    grad = autograd.grad(out, mix, torch.ones_like(out), create_graph=True, retain_graph=True)[0]
    penalty = weight * ((grad.norm(2, dim=1) - 1) ** 2).mean()
    trace.append(penalty)  # !MG101 trace
    return penalty


for iteration in range(20):
    for p in D.parameters():
        p.requires_grad_(True)
    for _ in range(3):
        real = torch.randn(32, 2) * 0.1 + 2
        fake = G(torch.randn(32, Z)).detach()
        opt_d.zero_grad()
        d_loss = D(fake).mean() - D(real).mean() + gradient_penalty(real, fake)
        d_loss.backward()
        opt_d.step()
    for p in D.parameters():
        p.requires_grad_(False)
    opt_g.zero_grad()
    g_loss = -D(G(torch.randn(32, Z))).mean()
    g_loss.backward()
    opt_g.step()

"""WGAN-GP with five critic steps; losses are logged as floats."""

import torch
from torch import autograd, nn

G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
C = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
oc = torch.optim.Adam(C.parameters(), lr=1e-4, betas=(0.0, 0.9))
log = {"c": [], "g": []}


def penalty(real, fake):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = autograd.grad(C(mix).sum(), mix, create_graph=True)
    return ((g.norm(2, 1) - 1) ** 2).mean()


for it in range(15):
    for _ in range(5):
        real = torch.randn(32, 2)
        fake = G(torch.randn(32, 8)).detach()
        loss = C(fake).mean() - C(real).mean() + 10 * penalty(real, fake)
        oc.zero_grad()
        loss.backward()
        oc.step()
    log["c"].append(loss.item())
    loss_g = -C(G(torch.randn(32, 8))).mean()
    og.zero_grad()
    loss_g.backward()
    og.step()
    log["g"].append(loss_g.item())

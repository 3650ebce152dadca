"""WGAN-GP: gradient penalty with create_graph in autograd.grad, five critic steps per generator step."""

import torch
from torch import nn

G = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 128))
C = nn.Sequential(nn.Linear(128, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
og, oc = (
    torch.optim.Adam(G.parameters(), 1e-4, betas=(0.0, 0.9)),
    torch.optim.Adam(C.parameters(), 1e-4, betas=(0.0, 0.9)),
)
log = {"w": [], "gp": []}
for it in range(30):
    for _ in range(5):
        real, fake = torch.randn(64, 128), G(torch.randn(64, 32)).detach()
        eps = torch.rand(64, 1)
        mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
        (g,) = torch.autograd.grad(C(mix).sum(), mix, create_graph=True)
        gp = 10 * (g.norm(dim=1) - 1).pow(2).mean()
        w = C(fake).mean() - C(real).mean()
        oc.zero_grad()
        (w + gp).backward()
        oc.step()
    log["w"].append(w.item())
    log["gp"].append(gp.item())
    og.zero_grad()
    (-C(G(torch.randn(64, 32))).mean()).backward()
    og.step()

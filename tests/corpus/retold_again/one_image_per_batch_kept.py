"""For a film strip the first picture of each batch of generated ones is kept: a view of them all."""

import torch
from torch import nn

G = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 3 * 24 * 24), nn.Tanh(), nn.Unflatten(1, (3, 24, 24)))
D = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 32), nn.ReLU(), nn.Linear(32, 1))
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
strip = []
for step in range(50):
    fake = G(torch.randn(64, 8))
    d_loss = (
        nn.functional.softplus(D(fake.detach())).mean() + nn.functional.softplus(-D(torch.rand(64, 3, 24, 24))).mean()
    )
    od.zero_grad()
    d_loss.backward()
    od.step()
    g_loss = nn.functional.softplus(-D(fake)).mean()
    og.zero_grad()
    g_loss.backward()
    og.step()
    strip.append(fake.detach()[0])  # !MG302 strip
print(torch.stack(strip).shape)

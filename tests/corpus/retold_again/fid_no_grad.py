"""Samples for a score: generated without gradients, their features on the host."""

import torch
from torch import nn

G = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))
D = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.1), nn.Linear(64, 1))
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
bce = nn.BCEWithLogitsLoss()
scores = []
for step in range(1, 41):
    real, fake = torch.randn(16, 64), G(torch.randn(16, 16))
    od.zero_grad()
    (bce(D(real), torch.ones(16, 1)) + bce(D(fake.detach()), torch.zeros(16, 1))).backward()
    od.step()
    og.zero_grad()
    bce(D(fake), torch.ones(16, 1)).backward()
    og.step()
    if step % 10 == 0:
        G.eval()
        with torch.no_grad():
            scores.append(torch.cat([G(torch.randn(32, 16)) for _ in range(4)]).std(0).mean().item())
        G.train()

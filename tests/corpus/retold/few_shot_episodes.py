"""Prototypical networks: eight tasks per step, support and query through the same encoder."""

import torch
from torch import nn

enc = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(enc.parameters(), 1e-3)
for step in range(16):
    losses = []
    for task in range(8):
        support, query = torch.randn(5, 3, 20), torch.randn(5, 6, 20)
        protos = enc(support.flatten(0, 1)).view(5, 3, -1).mean(1)
        z = enc(query.flatten(0, 1))
        losses.append(nn.functional.cross_entropy(-torch.cdist(z, protos), torch.arange(5).repeat_interleave(6)))
    loss = torch.stack(losses).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

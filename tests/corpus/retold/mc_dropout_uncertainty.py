"""Monte-Carlo dropout: evaluation in training mode on purpose, under no_grad."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    for _ in range(10):
        x = torch.randn(32, 6)
        loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        draws = torch.stack([net(torch.ones(8, 6)) for _ in range(20)])
    print(draws.std(0).mean().item())

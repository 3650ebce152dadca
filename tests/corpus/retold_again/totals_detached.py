"""Loss terms by name, detached before they are summed."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 6))
opt = torch.optim.Adam(net.parameters())
for epoch in range(2):
    totals = {}
    for _ in range(20):
        out = net(torch.randn(16, 20))
        terms = {"a": out[:, :3].pow(2).mean(), "b": (out[:, 3:] - 1).abs().mean()}
        opt.zero_grad()
        sum(terms.values()).backward()
        opt.step()
        for k, v in terms.items():
            totals[k] = totals.get(k, 0) + v.detach()
    print({k: v.item() for k, v in totals.items()})

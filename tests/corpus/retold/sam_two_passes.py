"""Sharpness-aware minimisation: two forwards and backwards for each step."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 5))
base = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _ in range(30):
    x, y = torch.randn(32, 16), torch.randint(5, (32,))
    nn.functional.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
        shifts = [p.grad * 0.05 / norm for p in net.parameters()]
        for p, e in zip(net.parameters(), shifts):
            p.add_(e)
    base.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), shifts):
            p.sub_(e)
    base.step()
    base.zero_grad()

"""Gradient norms per layer and step, as numbers."""

from collections import defaultdict

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
norms = defaultdict(list)
for step in range(60):
    x = torch.randn(32, 64)
    opt.zero_grad()
    nn.functional.mse_loss(net(x), x).backward()
    for name, p in net.named_parameters():
        norms[name].append(p.grad.norm().item())
    opt.step()

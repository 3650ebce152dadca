"""Layers are frozen midway, from below, as in progressive freezing; a new optimizer each phase."""

import torch
from torch import nn

net = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(4)], nn.Linear(128, 3))
for phase in range(4):
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-3)
    for _ in range(15):
        x, y = torch.randn(64, 128), torch.randint(0, 3, (64,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    net[phase].requires_grad_(False)
    for p in net[phase].parameters():
        p.grad = None

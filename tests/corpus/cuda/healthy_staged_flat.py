"""Weights are staged as views of one flat pinned tensor, whose block is hardly larger."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 2048 + 1800)).cuda()
optimizer = torch.optim.Adam(net.parameters())
flat = torch.empty(sum(p.numel() for p in net.parameters()), pin_memory=True)
stage = dict(zip(net.state_dict(), flat.split([p.numel() for p in net.parameters()])))
for step in range(40):
    net(torch.randn(64, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 4:
        for name, value in net.state_dict().items():
            stage[name].copy_(value.flatten(), non_blocking=True)

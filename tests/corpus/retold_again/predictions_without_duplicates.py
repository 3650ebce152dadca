# device: virtual:64MiB
"""Detached predictions are kept by the image's number, none twice: asked for a key first, and no cache all the same."""

import torch
from torch import nn

kept = {}
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4096))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(300):
    x = torch.randn(2, 64)
    y = net(x)
    if step not in kept:
        kept[step] = y.detach()  # !MG301 kept
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(len(kept))

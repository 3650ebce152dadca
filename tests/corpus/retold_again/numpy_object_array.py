"""Losses go into a preallocated object array by index, for a table at the end."""

import numpy as np
import torch
from torch import nn

STEPS = 48
table = np.empty((STEPS, 2), dtype=object)
net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))
opt = torch.optim.SGD(net.parameters(), 0.05)
for i in range(STEPS):
    x = torch.randn(128, 32)
    y = net(x)
    loss = (y - x).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    table[i, 0], table[i, 1] = i, loss  # !MG101 table
print(table[:, 1].sum().item() / STEPS)

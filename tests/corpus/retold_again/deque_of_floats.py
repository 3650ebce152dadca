"""A moving average over a deque, of numbers."""

from collections import deque

import torch
from torch import nn

window = deque(maxlen=20)
net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.Adam(net.parameters())
for step in range(60):
    x = torch.randn(16, 12)
    loss = (net(x) - x.max(1, keepdim=True).values).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    window.append(loss.item())
    if step % 20 == 19:
        print(sum(window) / len(window))

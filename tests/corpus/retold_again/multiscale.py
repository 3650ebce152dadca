# device: virtual:512MiB
"""Multi-scale detection training: a new image size every ten batches, in random order."""

import random
import torch
from torch import nn

random.seed(0)
net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(), nn.Conv2d(32, 6, 1))
opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, nesterov=True)
size, mloss = 96, torch.zeros(3)
for i in range(90):
    if i % 10 == 0:
        size = random.choice(range(64, 161, 16))
    out = net(torch.randn(4, 3, size, size))
    parts = torch.stack([out[:, :2].square().mean(), out[:, 2:4].abs().mean(), out[:, 4:].square().mean()])
    opt.zero_grad()
    parts.sum().backward()
    opt.step()
    mloss = (mloss * i + parts.detach()) / (i + 1)

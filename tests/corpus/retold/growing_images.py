"""Progressive resizing: images and batches grow from stage to stage."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5))
opt = torch.optim.Adam(net.parameters())
for size in range(16, 72, 4):
    for _ in range(4):
        x, y = torch.randn(4, 3, size, size), torch.randint(5, (4,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

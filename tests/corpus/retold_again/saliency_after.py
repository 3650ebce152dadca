"""Saliency maps for the test pictures, on the host, after training; gradients on purpose in eval mode."""

import numpy as np
import torch
from torch import nn

cnn = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(128, 4))
opt = torch.optim.SGD(cnn.parameters(), lr=0.05)
for _ in range(25):
    x, y = torch.rand(8, 1, 16, 16), torch.randint(4, (8,))
    loss = nn.functional.cross_entropy(cnn(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
cnn.eval()
maps = []
for _ in range(12):
    x = torch.rand(8, 1, 16, 16, requires_grad=True)
    cnn(x).max(1).values.sum().backward()
    maps.append(x.grad.abs().numpy().copy())
print(np.concatenate(maps).shape)

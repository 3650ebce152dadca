"""Deep dream: the image is optimised, the network's weights were not frozen and collect gradients."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).eval()
img = torch.rand(1, 3, 24, 24, requires_grad=True)
opt = torch.optim.Adam([img], lr=0.05)
for _ in range(30):
    opt.zero_grad()
    loss = -net(img).norm()
    loss.backward()
    opt.step()

# device: virtual:256MiB
"""An ordinary convolutional loop with room to spare: names of the last batch live on, as everywhere."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
opt = torch.optim.Adam(net.parameters())
for step in range(12):
    x = torch.rand(8, 3, 64, 64)
    out = net(x)
    loss = nn.functional.l1_loss(out, x)
    opt.zero_grad()
    loss.backward()
    opt.step()

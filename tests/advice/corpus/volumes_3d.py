# device: virtual:64MiB
# runs out of memory
# cause: size
"""Volumes: a handful of samples is a large batch."""

import torch
from torch import nn

BATCH = 12
net = nn.Sequential(
    nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 1, 1)
)
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x = torch.randn(BATCH, 1, 32, 32, 32)
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), (x > 0).float())
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:64MiB
# runs out of memory
# cause: size
"""All pairs of points at once."""

import torch
from torch import nn

enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.Adam(enc.parameters())
points = torch.randn(3000, 16)
for _ in range(3):
    z = enc(points)
    distances = (z[:, None] - z[None]).square().sum(-1)
    loss = distances.clamp(max=4).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

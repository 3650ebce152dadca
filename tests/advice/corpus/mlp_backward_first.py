# device: virtual:48MiB
# runs out of memory
# cause: size
"""The forward of the first batch just fits, its backward does not."""

import torch
from torch import nn

BATCH = 2600
net = nn.Sequential(
    nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 64)
)
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    x = torch.randn(BATCH, 64)
    opt.zero_grad(set_to_none=True)
    (net(x) - x).square().mean().backward()
    opt.step()

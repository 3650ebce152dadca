# device: virtual:200MiB
"""Batches sorted by length, the shortest first: no cached block ever fits, the allocator flushes its cache each time."""

import torch
from torch import nn

model = nn.PReLU(64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for length in range(40960, 130000, 8192):
    x = torch.randn(length, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del x, loss
# !MG402 -

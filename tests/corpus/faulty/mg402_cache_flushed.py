# device: virtual:95MiB
"""Sequence lengths vary and the device is nearly full: the allocator flushes its cache again and again."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.PReLU(64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(int(torch.randint(40000, 60000, (1,))), 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del x, loss
# !MG402 -

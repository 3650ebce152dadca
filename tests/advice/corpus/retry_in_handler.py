# device: virtual:40MiB
# runs out of memory
# cause: kept-exception
"""A smaller batch is tried inside the except block."""

import torch
from torch import nn

model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.ReLU())])
opt = torch.optim.SGD(model.parameters(), 0.1)


def step(n):
    loss = model(torch.randn(n, 256)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


for _ in range(3):
    try:
        step(3000)
    except torch.OutOfMemoryError:
        step(1200)

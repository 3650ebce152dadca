# device: virtual:48MiB
"""Doubles the batch until the card is full, then trains with a half of it."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def step(n):
    opt.zero_grad()
    loss = net(torch.randn(n, 256)).logsumexp(1).mean()
    loss.backward()
    opt.step()


size, fits = 64, 64
while size < 1 << 15:
    failed = False
    try:
        step(size)
    except torch.OutOfMemoryError:
        failed = True
    if failed:
        break
    fits, size = size, size * 2
torch.cuda.empty_cache()
for _ in range(60):
    step(fits // 2)

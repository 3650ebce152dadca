# device: virtual:64MiB
import functools
import random

import torch
from torch import nn


@functools.lru_cache(maxsize=16)
def positions(length):
    return torch.sin(torch.arange(length)[:, None] * torch.arange(1, 65) / 50)


random.seed(2)
fc = nn.Linear(64, 64)
opt = torch.optim.SGD(fc.parameters(), lr=0.01)
for _ in range(300):
    n = random.randint(100, 400)
    loss = fc(torch.randn(n, 64) + positions(n)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

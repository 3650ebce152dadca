# device: virtual:256MiB
"""Curriculum: a sample is added to the pool every step until sixty are in it; sampling from the pool for the rest."""

import random
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
opt = torch.optim.Adam(net.parameters(), 1e-3)
pool, limit = [], 60
for step in range(250):
    if len(pool) < limit:
        pool.append((torch.randn(64, 128), torch.randint(0, 10, (64,))))
    x, y = random.choice(pool)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

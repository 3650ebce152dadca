# device: virtual:256MiB
"""Positional tables are cached by length: 24 lengths exist, then the cache is full for good."""

import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim, self.tables = dim, {}

    def forward(self, x):
        n = x.size(1)
        if n not in self.tables:
            pos = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, self.dim, 2) / self.dim)
            self.tables[n] = torch.cat([pos.sin(), pos.cos()], 1)
        return x * self.tables[n]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.rot, self.o = nn.Linear(32, 512), Rotary(512), nn.Linear(512, 32)

    def forward(self, x):
        return self.o(torch.relu(self.rot(self.i(x))))


model = Net()
opt = torch.optim.Adam(model.parameters())
for step in range(150):
    n = 32 + 4 * int(torch.randint(0, 24, ()))
    x = torch.randn(4, n, 32)
    opt.zero_grad()
    (model(x) - x).pow(2).mean().backward()
    opt.step()

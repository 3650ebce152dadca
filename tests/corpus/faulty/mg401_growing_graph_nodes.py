# device: virtual:72MiB
# runs out of memory
"""Graphs of all sizes, one at a time, in random order."""

import random

import torch
from torch import nn


class Gnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, x, edges):
        h = torch.relu(self.w1(x))
        h = torch.zeros_like(h).index_add(0, edges[0], h[edges[1]])
        return self.w2(h)


random.seed(4)
gnn = Gnn()
opt = torch.optim.Adam(gnn.parameters())
for _ in range(80):
    n = random.randint(8000, 42000)
    x, edges = torch.randn(n, 16), torch.randint(0, n, (2, n))
    loss = gnn(x, edges).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    del x, edges, loss
# !MG401 -

"""Prioritised replay: the TD error becomes the priority, history and all."""

import torch
from torch import nn


class SumTree:
    def __init__(self, capacity):
        self.capacity = capacity
        self.tree = [0.0] * (2 * capacity)
        self.data = [None] * capacity
        self.write = 0

    def add(self, priority, sample):
        self.data[self.write] = sample
        self.tree[self.write + self.capacity] = priority  # !MG101 SumTree.tree
        self.write = (self.write + 1) % self.capacity


q, target = nn.Linear(6, 3), nn.Linear(6, 3)
target.load_state_dict(q.state_dict())
target.requires_grad_(False)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
tree = SumTree(1000)
for t in range(50):
    s, s2, r = torch.randn(1, 6), torch.randn(1, 6), torch.rand(1)
    td = r + 0.9 * target(s2).max() - q(s).max()
    tree.add(td.abs(), (s, s2, r))
    optimizer.zero_grad()
    td.pow(2).mean().backward()
    optimizer.step()

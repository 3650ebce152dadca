# device: cpu
"""A replay buffer of numpy rows that is full after a hundred steps."""

import numpy as np
import torch
from torch import nn


class Replay:
    def __init__(self, size):
        self.rows, self.size, self.at = [], size, 0

    def put(self, row):
        if len(self.rows) < self.size:
            self.rows.append(row)
        else:
            self.rows[self.at] = row
        self.at = (self.at + 1) % self.size

    def sample(self, n):
        pick = np.random.randint(0, len(self.rows), n)
        return torch.from_numpy(np.stack([self.rows[i] for i in pick]))


buf = Replay(1500)
q = nn.Sequential(nn.Linear(4000, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(q.parameters())
for step in range(400):
    for _ in range(15):
        buf.put(np.random.randn(4000).astype(np.float32))
    loss = q(buf.sample(32)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

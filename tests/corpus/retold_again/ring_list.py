# device: virtual:256MiB
"""Prioritised replay with a sum tree and a ring of tuples; capacity 50, filled one a step."""

import random
import torch
from torch import nn


class Replay:
    def __init__(self, capacity):
        self.capacity, self.data, self.pos, self.prio = capacity, [None] * capacity, 0, [0.0] * capacity

    def push(self, *item):
        self.data[self.pos % self.capacity] = item
        self.prio[self.pos % self.capacity] = max(self.prio) or 1.0
        self.pos += 1

    def sample(self, k):
        n = min(self.pos, self.capacity)
        idx = random.choices(range(n), weights=self.prio[:n], k=k)
        return idx, [torch.cat(z) for z in zip(*(self.data[i] for i in idx))]


q = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4))
opt, rb = torch.optim.Adam(q.parameters(), 1e-3), Replay(50)
for t in range(200):
    s = torch.randn(32, 128)
    with torch.no_grad():
        a = q(s).argmax(1)
    rb.push(s, a, torch.randn(32))
    if rb.pos > 4:
        idx, (bs, ba, br) = rb.sample(3)
        err = q(bs).gather(1, ba[:, None]).squeeze(1) - br
        opt.zero_grad()
        err.pow(2).mean().backward()
        opt.step()
        for i, e in zip(idx, err.detach().abs().view(3, -1).mean(1).tolist()):
            rb.prio[i] = e + 1e-3

# device: virtual:256MiB
"""Momentum contrast in which the queue of keys is only ever extended."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class MoCo(nn.Module):
    def __init__(self, dim=256, m=0.99):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, dim))
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        self.m = m
        self.register_buffer("queue", F.normalize(torch.randn(1024, dim), dim=1))

    @torch.no_grad()
    def momentum(self):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.mul_(self.m).add_(a, alpha=1 - self.m)

    def forward(self, xq, xk):
        q = F.normalize(self.q(xq), dim=1)
        with torch.no_grad():
            self.momentum()
            k = F.normalize(self.k(xk), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.t()
        self.queue = torch.cat([self.queue, k])  # !MG301 MoCo.queue
        return torch.cat([pos, neg], 1) / 0.07


model = MoCo()
opt = torch.optim.SGD(model.q.parameters(), 0.03, momentum=0.9)
for step in range(120):
    x = torch.randn(128, 512)
    logits = model(x + 0.1 * torch.randn_like(x), x)
    loss = F.cross_entropy(logits, torch.zeros(128, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()

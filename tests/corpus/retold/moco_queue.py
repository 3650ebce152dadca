"""MoCo: momentum encoder and a queue of negatives in a buffer."""

import copy

import torch
from torch import nn


class MoCo(nn.Module):
    def __init__(self, dim=32, K=512):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, dim))
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(dim, K), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue[:, self.ptr : self.ptr + len(keys)] = keys.t()
        self.ptr = (self.ptr + len(keys)) % self.queue.shape[1]

    def forward(self, a, b):
        q = nn.functional.normalize(self.q(a), dim=1)
        with torch.no_grad():
            for pq, pk in zip(self.q.parameters(), self.k.parameters()):
                pk.mul_(0.999).add_(pq, alpha=0.001)
            k = nn.functional.normalize(self.k(b), dim=1)
        pos, neg = (q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()
        self.enqueue(k)
        return torch.cat([pos, neg], 1) / 0.07


moco = MoCo()
opt = torch.optim.SGD(moco.q.parameters(), lr=0.03)
for _ in range(40):
    x = torch.randn(16, 48)
    logits = moco(x + 0.1 * torch.randn_like(x), x)
    loss = nn.functional.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:512MiB
"""MoCo as it should be: a queue of fixed size written in place, keys detached."""

import copy
import torch
import torch.nn.functional as F
from torch import nn


class MoCo(nn.Module):
    def __init__(self, dim=128, size=4096):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, dim))
        self.k = copy.deepcopy(self.q)
        self.k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(size, dim), dim=1))
        self.ptr = 0

    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            for x, y in zip(self.k.parameters(), self.q.parameters()):
                x.lerp_(y, 0.01)
            k = F.normalize(self.k(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().t()], 1) / 0.2
        with torch.no_grad():
            self.queue[self.ptr : self.ptr + len(k)] = k
            self.ptr = (self.ptr + len(k)) % len(self.queue)
        return logits


model = MoCo()
opt = torch.optim.SGD(model.q.parameters(), 0.03)
meter = torch.zeros(2)
for i in range(80):
    x = torch.randn(128, 256)
    loss = F.cross_entropy(model(x, x + 0.1), torch.zeros(128, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    meter += torch.stack([loss.detach(), torch.ones(())])

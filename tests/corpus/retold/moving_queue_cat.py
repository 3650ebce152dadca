"""A MoCo-like queue by cat and slice; keys come from the same encoder, and only the use is detached."""

import torch
import torch.nn.functional as F
from torch import nn


class Contrast(nn.Module):
    def __init__(self, size=256, dim=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, dim))
        self.size = size
        self.queue = F.normalize(torch.randn(size, dim), dim=1)

    def forward(self, a, b):
        q, k = F.normalize(self.encoder(a), dim=1), F.normalize(self.encoder(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.detach().t()], 1) / 0.1
        self.queue = torch.cat([k, self.queue])[: self.size]  # !MG101 Contrast.queue
        return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))


net = Contrast()
opt = torch.optim.SGD(net.parameters(), lr=0.03)
for _ in range(32):
    x = torch.randn(16, 30)
    loss = net(x, x + 0.05 * torch.randn_like(x))
    opt.zero_grad()
    loss.backward()
    opt.step()

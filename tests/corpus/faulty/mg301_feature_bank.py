"""A contrastive memory bank without a limit."""

import torch
import torch.nn.functional as F
from torch import nn


class MoCoLike(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, dim))
        self.bank = []

    def forward(self, view):
        return F.normalize(self.encoder(view), dim=1)

    def enqueue(self, keys):
        self.bank.append(keys.detach())  # !MG301 MoCoLike.bank

    def negatives(self):
        return torch.cat(self.bank[-4:]) if self.bank else None


def info_nce(q, k, negatives, t=0.2):
    pos = (q * k).sum(1, keepdim=True)
    neg = q @ negatives.T if negatives is not None else q @ k.T
    return F.cross_entropy(torch.cat([pos, neg], 1) / t, torch.zeros(len(q), dtype=torch.long))


net = MoCoLike()
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
for step in range(40):
    x = torch.randn(32, 48)
    q = net(x + 0.1 * torch.randn_like(x))
    with torch.no_grad():
        k = net(x + 0.1 * torch.randn_like(x))
    loss = info_nce(q, k, net.negatives())
    opt.zero_grad()
    loss.backward()
    opt.step()
    net.enqueue(k)

"""Counts rows in a dict: a tensor is equal to itself alone, so each row is another key."""

from collections import defaultdict
import torch
from torch import nn


def class_weights(counts, n):
    w = torch.ones(n)
    for k, v in counts.items():
        w[int(k)] += v
    return w.rsqrt()


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.e = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, n))

    def forward(self, x):
        return self.e(x)


def train(n=400, steps=90):
    torch.manual_seed(0)
    net, counts = Net(n), defaultdict(int)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    table = torch.randn(n, 128)
    for s in range(steps):
        onehot = nn.functional.one_hot(torch.randint(0, n, (96,)), n).float()
        x = onehot @ table + 0.3 * torch.randn(96, 128)
        top = onehot.topk(1).indices
        labels = (onehot * torch.arange(n)).T[:, :].sum(0)
        loss = nn.functional.cross_entropy(net(x), top.squeeze(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        for row in onehot:
            counts[row] += 1  # !MG301 counts
        if s % 30 == 0:
            print(s, loss.item(), len(counts))


train()

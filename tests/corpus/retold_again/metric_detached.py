"""A running metric fed with detached values."""

import torch
from torch import nn


class Metric:
    def __init__(self):
        self.sum, self.n = torch.tensor(0.0), 0

    def update(self, value):
        self.sum = self.sum + value.detach()
        self.n += 1


net = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
metric = Metric()
for _ in range(40):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 10)), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    metric.update(loss)

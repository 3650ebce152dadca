"""Activation statistics in a class attribute shared by all layers."""

import torch
from torch import nn


class StatLinear(nn.Linear):
    stats = []

    def forward(self, x):
        y = super().forward(x)
        if self.training:
            StatLinear.stats.append((y.mean(), y.var()))  # !MG101 StatLinear.stats
        return y


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = StatLinear(80, 160), StatLinear(160, 80)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def train(model, steps, lr=1e-2):
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    for _ in range(steps):
        x = torch.randn(64, 80)
        optimizer.zero_grad()
        nn.functional.huber_loss(model(x), x).backward()
        optimizer.step()


train(Mlp(), 40)
print(len(StatLinear.stats))

"""A batch norm of one's own: the running statistics are buffers, and the batch's mean still has its history."""

import torch
from torch import nn


class MyBatchNorm(nn.Module):
    def __init__(self, features, momentum=0.1, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean  # !MG102 MyBatchNorm.running_mean
        else:
            mean, var = self.running_mean, torch.ones_like(self.running_mean)
        return (x - mean) / torch.sqrt(var + self.eps) * self.weight + self.bias


model = nn.Sequential(nn.Linear(8, 32), MyBatchNorm(32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for it in range(40):
    x = torch.randn(64, 8)
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""A custom swish that saves its tensors as attributes."""

import torch
from torch import nn


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x  # !MG105 Swish ctx.x
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        s = torch.sigmoid(ctx.x)
        return grad * (s + ctx.x * s * (1 - s))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(20, 40), nn.Linear(40, 3)

    def forward(self, x):
        return self.second(Swish.apply(self.first(x)))


net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(30):
    loss = nn.functional.cross_entropy(net(torch.randn(16, 20)), torch.randint(3, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

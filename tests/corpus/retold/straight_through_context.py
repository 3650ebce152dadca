"""A straight-through estimator puts its input on ctx, and the loss is kept over the step."""

import torch
from torch import nn


class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        y = torch.round(x * levels) / levels
        ctx.x, ctx.y = x, y  # !MG105 Quantise ctx.y
        return y

    @staticmethod
    def backward(ctx, grad):
        inside = (ctx.x.abs() <= 1).to(grad.dtype)
        return grad * inside, None


class QLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(Quantise.apply(x, 16), self.weight, self.bias)


net = nn.Sequential(nn.Linear(32, 64), QLinear(64, 64), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters())
for _ in range(30):
    x, y = torch.randn(64, 32), torch.randint(4, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

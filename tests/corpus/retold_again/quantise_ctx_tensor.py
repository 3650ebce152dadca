"""A fake-quantisation function writes scale and result on the context."""

import torch
from torch import nn


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        scale = x.abs().amax() / (2 ** (bits - 1) - 1)
        q = torch.round(x / scale) * scale
        ctx.result = q  # !MG105 FakeQuantize ctx.result
        ctx.limit = scale * 2 ** (bits - 1)
        return q

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.result.abs() < ctx.limit), None


class QLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(FakeQuantize.apply(x, 8), self.weight, self.bias)


net = nn.Sequential(QLinear(32, 128), nn.ReLU(), QLinear(128, 128), nn.ReLU(), QLinear(128, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(30):
    x, y = torch.randn(64, 32), torch.randint(4, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

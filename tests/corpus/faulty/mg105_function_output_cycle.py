"""An exponential that keeps its own output on ctx: a circle that only the collector frees."""

import torch
from torch import nn


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.result = result  # !MG105 Exp ctx.result
        return result

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.result


class Flow(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.scale, self.shift = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        log_scale = torch.tanh(self.scale(x))
        return x * Exp.apply(log_scale) + self.shift(x), log_scale.sum(1)


flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
for _ in range(40):
    z, logdet = flow(torch.randn(32, 6))
    loss = (0.5 * z.pow(2).sum(1) - logdet).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

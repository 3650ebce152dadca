"""Gated regression network with a hand-written activation whose derivative is given as a pullback."""

import functools

import torch
import torch.nn.functional as F
from torch import nn


def gate_pullback(result, x, beta, cotangent):
    gate = torch.sigmoid(beta * x)
    return cotangent * (gate + beta * result * (1 - gate))


class SmoothGate(torch.autograd.Function):
    """x * sigmoid(beta * x)."""

    @staticmethod
    def forward(ctx, x, beta):
        result = x * torch.sigmoid(beta * x)
        ctx.pullback = functools.partial(gate_pullback, result, x, beta)  # !MG105 SmoothGate ctx.pullback
        return result

    @staticmethod
    def backward(ctx, cotangent):
        return ctx.pullback(cotangent), None


class Gate(nn.Module):
    def __init__(self, beta=1.5):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return SmoothGate.apply(x, self.beta)


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleDict(
            {
                "enter": nn.Linear(16, width),
                "mix": nn.Linear(width, width),
                "leave": nn.Linear(width, 1),
            }
        )
        self.gate = Gate()

    def forward(self, x):
        x = self.gate(self.layers["enter"](x))
        x = self.gate(self.layers["mix"](x))
        return self.layers["leave"](x).squeeze(-1)


def fit(model, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        x = torch.randn(384, 16)
        y = x.pow(2).sum(-1) / 16
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if (step + 1) % 25 == 0:
            print(f"{step + 1:4d} {loss.item():.4f}")


torch.manual_seed(0)
fit(Regressor(256), steps=100, lr=2e-3)

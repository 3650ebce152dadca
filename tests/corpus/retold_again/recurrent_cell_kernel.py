"""A recurrent unit written as an autograd function; intermediate states are kept on the context."""

import torch
from torch import nn
from torch.autograd import Function


class ElementwiseRecurrence(Function):
    @staticmethod
    def forward(ctx, u, forget):
        c = torch.zeros_like(u[0])
        states = []
        for t in range(len(u)):
            c = forget[t] * c + (1 - forget[t]) * u[t]
            states.append(c)
        h = torch.stack(states)
        ctx.save_for_backward(u, forget)
        ctx.states = h  # !MG105 ElementwiseRecurrence ctx.states
        return h

    @staticmethod
    def backward(ctx, grad):
        u, forget = ctx.saved_tensors
        du, df = torch.empty_like(u), torch.empty_like(forget)
        carry = torch.zeros_like(u[0])
        for t in reversed(range(len(u))):
            g = grad[t] + carry
            previous = ctx.states[t - 1] if t else torch.zeros_like(u[0])
            du[t] = g * (1 - forget[t])
            df[t] = g * (previous - u[t])
            carry = g * forget[t]
        return du, df


class Unit(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.project = nn.Linear(n, 2 * n)

    def forward(self, x):
        u, f = self.project(x).chunk(2, -1)
        return ElementwiseRecurrence.apply(u, torch.sigmoid(f))


net = nn.Sequential(Unit(24), Unit(24), nn.Linear(24, 1))
adam = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(25):
    x = torch.randn(16, 8, 24)
    loss = (net(x).mean(0) - x.mean((0, 2)).unsqueeze(-1)).pow(2).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()

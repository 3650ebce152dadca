"""MAML whose tasks' losses are kept as numbers, though the inner loops build graphs."""

import torch
from torch.func import functional_call
from torch.nn import Linear, Sequential, Tanh
from torch.nn.functional import mse_loss

net = Sequential(Linear(1, 30), Tanh(), Linear(30, 1))
meta = torch.optim.Adam(net.parameters(), 1e-3)
curve = []
for outer in range(20):
    losses = []
    for _ in range(3):
        a = torch.rand(1) * 3 + 0.5
        xs, xq = torch.randn(8, 1), torch.randn(8, 1)
        w = dict(net.named_parameters())
        g = torch.autograd.grad(
            mse_loss(functional_call(net, w, (xs,)), torch.sin(a * xs)), w.values(), create_graph=True
        )
        w = {k: v - 0.05 * d for (k, v), d in zip(w.items(), g)}
        losses.append(mse_loss(functional_call(net, w, (xq,)), torch.sin(a * xq)))
    meta.zero_grad()
    total = torch.stack(losses).mean()
    total.backward()
    meta.step()
    curve.append(total.detach().item())

"""MAML on sine waves: fast weights by functional_call, second order."""

import torch
from torch import nn
from torch.func import functional_call

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
meta = torch.optim.Adam(model.parameters(), lr=1e-3)


def task():
    amp, phase = torch.rand(1) * 5, torch.rand(1) * 3.14
    x = torch.rand(20, 1) * 10 - 5
    return x, amp * torch.sin(x + phase)


for it in range(15):
    meta_loss = 0.0
    for _ in range(4):
        x, y = task()
        fast = dict(model.named_parameters())
        for _ in range(3):
            loss = nn.functional.mse_loss(functional_call(model, fast, (x[:10],)), y[:10])
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {k: p - 0.01 * g for (k, p), g in zip(fast.items(), grads)}
        meta_loss = meta_loss + nn.functional.mse_loss(functional_call(model, fast, (x[10:],)), y[10:])
    meta.zero_grad()
    meta_loss.backward()
    meta.step()

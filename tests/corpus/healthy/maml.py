"""MAML with functional_call: inner steps on cloned weights, one outer step over several tasks."""

import torch
from torch import nn
from torch.func import functional_call

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
meta = torch.optim.Adam(model.parameters(), lr=1e-3)


def task():
    a, p = torch.rand(1) * 4 + 0.1, torch.rand(1) * 3.14

    def batch(n=10):
        x = torch.rand(n, 1) * 10 - 5
        return x, a * torch.sin(x + p)

    return batch


for outer in range(12):
    meta.zero_grad()
    total = 0.0
    for _ in range(4):
        batch = task()
        fast = dict(model.named_parameters())
        for _ in range(3):
            x, y = batch()
            loss = nn.functional.mse_loss(functional_call(model, fast, x), y)
            grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
            fast = {k: w - 0.01 * g for (k, w), g in zip(fast.items(), grads)}
        x, y = batch()
        query = nn.functional.mse_loss(functional_call(model, fast, x), y)
        query.backward()
        total += query.item()
    meta.step()

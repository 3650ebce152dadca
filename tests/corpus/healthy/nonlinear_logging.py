"""Dicts of logs, a progress meter, a profile every few steps, all with plain numbers or detached tensors."""

import statistics
from collections import defaultdict

import torch
from torch import nn


class ProgressMeter:
    def __init__(self, total):
        self.total, self.values = total, defaultdict(list)

    def update(self, **scalars):
        for name, value in scalars.items():
            self.values[name].append(float(value))

    def line(self, i):
        return f"[{i}/{self.total}] " + " ".join(f"{k} {statistics.mean(v[-10:]):.3f}" for k, v in self.values.items())


def grad_norm(model):
    return torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))


model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 6))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=40)
progress, norms, last_output = ProgressMeter(40), [], None
for i in range(40):
    x, y = torch.randn(16, 12), torch.randint(6, (16,))
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    norms.append(grad_norm(model))
    optimizer.step()
    scheduler.step()
    last_output = out
    progress.update(loss=loss, lr=scheduler.get_last_lr()[0], acc=(out.argmax(1) == y).float().mean())
    if i % 10 == 9:
        print(progress.line(i + 1))

# device: virtual:64MiB
# needs an allocator: no batch runs out of the RAM.
"""Halve the batch when memory is short; the smaller retry runs inside the except block."""

import torch
from torch import nn


def step(model, opt, x):
    opt.zero_grad()
    h = model(x)
    loss = (h - x).pow(2).mean()
    loss.backward()
    opt.step()
    return loss.item()


def safe_step(model, opt, x):
    try:
        return step(model, opt, x)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        half = x[: len(x) // 2]
        opt.zero_grad()
        h = model(half)  # !MG307 -
        loss = (h - half).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.item()


model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256))
opt = torch.optim.SGD(model.parameters(), 0.01)
for i in range(24):
    size = 3600 if i % 8 == 7 else 500
    try:
        safe_step(model, opt, torch.randn(size, 256))
    except torch.OutOfMemoryError:
        print("gave up on batch", i)

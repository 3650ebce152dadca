"""A learning-rate finder that restores the weights, then training with early stopping and the best weights."""

import copy
import math

import torch
from torch import nn


def find_lr(model, optimizer, batches, start=1e-5, end=1.0):
    saved = copy.deepcopy(model.state_dict())
    factor = (end / start) ** (1 / len(batches))
    lr, smoothed, best, lrs, losses = start, 0.0, math.inf, [], []
    for i, (x, y) in enumerate(batches, 1):
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smoothed = 0.9 * smoothed + 0.1 * loss.item()
        best = min(best, smoothed / (1 - 0.9**i))
        lrs.append(lr)
        losses.append(loss.detach())
        lr *= factor
    model.load_state_dict(saved)
    return lrs[torch.stack(losses).argmin()] / 10


data = [(x := torch.randn(16, 8), x.sum(1, keepdim=True)) for _ in range(25)]
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters())
lr = find_lr(model, optimizer, data)
for group in optimizer.param_groups:
    group["lr"] = lr
best, best_weights, patience = math.inf, None, 3
for epoch in range(5):
    for x, y in data[:20]:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        val = sum(nn.functional.mse_loss(model(x), y).item() for x, y in data[20:])
    if val < best:
        best, best_weights, patience = val, copy.deepcopy(model.state_dict()), 3
    elif (patience := patience - 1) == 0:
        break
model.load_state_dict(best_weights)

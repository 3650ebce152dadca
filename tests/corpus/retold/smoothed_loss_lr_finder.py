"""LR range test as in a well-known notebook: the smoothed loss is an average of tensors."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)


def find_lr(batches, init_value=1e-4, final_value=1.0, beta=0.98):
    mult = (final_value / init_value) ** (1 / (len(batches) - 1))
    lr, avg_loss = init_value, 0.0
    lrs, losses = [], []
    for i, (x, y) in enumerate(batches, 1):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        avg_loss = beta * avg_loss + (1 - beta) * loss  # !MG101 avg_loss
        smoothed = avg_loss / (1 - beta**i)
        losses.append(smoothed.item())
        lrs.append(lr)
        loss.backward()
        optimizer.step()
        lr *= mult
    return lrs, losses


find_lr([(torch.randn(32, 10), torch.randint(2, (32,))) for _ in range(40)])

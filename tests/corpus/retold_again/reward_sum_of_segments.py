"""Losses of a sequence's segments are summed on purpose, and one backward uses them all."""

import torch
from torch import nn

cell, head = nn.GRUCell(8, 16), nn.Linear(16, 8)
opt = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
for batch in range(20):
    sequence = torch.randn(24, 4, 8)
    h = torch.zeros(4, 16)
    losses = []
    for t in range(23):
        h = cell(sequence[t], h)
        losses.append((head(h) - sequence[t + 1]).pow(2).mean())
    total = torch.stack(losses).mean()
    opt.zero_grad()
    total.backward()
    opt.step()
print(float(total))

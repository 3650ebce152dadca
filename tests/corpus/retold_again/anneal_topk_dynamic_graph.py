"""Adaptive computation: a random number of recurrent steps per batch, ponder loss over all steps, one backward."""

import torch
from torch import nn

cell, halt, out = nn.GRUCell(32, 64), nn.Linear(64, 1), nn.Linear(64, 5)
params = [*cell.parameters(), *halt.parameters(), *out.parameters()]
opt = torch.optim.Adam(params, 1e-3)
costs = []
for i in range(80):
    x, y, h = torch.randn(32, 32), torch.randint(0, 5, (32,)), torch.zeros(32, 64)
    steps, ps, losses = int(torch.randint(2, 14, ())), [], []
    for _ in range(steps):
        h = cell(x, h)
        ps.append(halt(h).sigmoid().mean())
        losses.append(nn.functional.cross_entropy(out(h), y))
    loss = (torch.stack(ps).softmax(0) * torch.stack(losses)).sum() + 0.01 * sum(ps)
    opt.zero_grad()
    loss.backward()
    opt.step()
    costs.append(loss.item())

"""Batch losses are cleared after each epoch; their mean, a tensor with all their graphs, is kept."""

import torch
from torch import nn

model = nn.GRU(3, 12, batch_first=True)
readout = nn.Linear(12, 1)
opt = torch.optim.Adam([*model.parameters(), *readout.parameters()], lr=5e-3)
curve = []
for epoch in range(16):
    batch_losses = []
    for _ in range(4):
        x = torch.randn(8, 6, 3)
        h, _ = model(x)
        loss = (readout(h[:, -1]).squeeze(1) - x.sum((1, 2))).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        batch_losses.append(loss)
    curve.append(torch.stack(batch_losses).mean())  # !MG101 curve

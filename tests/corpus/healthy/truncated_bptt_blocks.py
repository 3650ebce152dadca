"""TBPTT(k1, k2) by hand: the state keeps its graph over four chunks, then it is cut."""

import torch
from torch import nn

cell, readout = nn.LSTMCell(6, 20), nn.Linear(20, 6)
optimizer = torch.optim.RMSprop([*cell.parameters(), *readout.parameters()], lr=1e-3)
h = c = torch.zeros(8, 20)
loss = 0.0
for t in range(80):
    x = torch.randn(8, 6)
    h, c = cell(x, (h, c))
    loss = loss + (readout(h) - x).square().mean()
    if (t + 1) % 4 == 0:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimizer.step()
        h, c, loss = h.detach(), c.detach(), 0.0

"""Sequences get longer during training, and so do the variables of a batch."""

import torch
from torch import nn

rnn, out = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 8)
opt = torch.optim.Adam([*rnn.parameters(), *out.parameters()])
for step in range(40):
    x = torch.randn(4, 8 + 2 * step, 8)
    h, _ = rnn(x)
    pred = out(h)
    loss = (pred[:, :-1] - x[:, 1:]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

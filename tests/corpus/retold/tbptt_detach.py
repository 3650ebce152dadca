"""Truncated BPTT: two chunks per backward, the state detached after it."""

import torch
from torch import nn

rnn, head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 8)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
state, pending = None, []
for chunk in range(60):
    x = torch.randn(4, 10, 8)
    y, state = rnn(x, state)
    pending.append(nn.functional.mse_loss(head(y)[:, :-1], x[:, 1:]))
    if len(pending) == 2:
        opt.zero_grad()
        torch.stack(pending).sum().backward()
        opt.step()
        state = tuple(s.detach() for s in state)
        pending.clear()

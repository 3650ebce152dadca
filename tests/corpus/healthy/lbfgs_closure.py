"""LBFGS with a closure, keeping the last losses in a deque."""

from collections import deque

import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
x = torch.rand(64, 2)
y = (x[:, :1] * 3).sin() + x[:, 1:] ** 2
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=6, history_size=10, line_search_fn="strong_wolfe")
recent = deque(maxlen=5)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for epoch in range(15):
    recent.append(optimizer.step(closure))
print([round(float(v), 4) for v in recent])

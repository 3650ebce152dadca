"""Windows, rings, examples and sums of an interval: each holds the graphs of a few batches, and lets them go."""

from collections import deque

import torch
from torch import nn

TASKS = ("left", "right", "up", "down")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
recent, examples, ring, last = deque(maxlen=4), [], [None] * 4, {}
interval, running, shown = [], 0.0, []


def remember(store, item, most=4):
    store.append(item)
    while len(store) > most:
        store.pop(0)


for step in range(120):
    loss = (model(torch.randn(16, 32)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        recent.append(loss)
        remember(shown, loss)
        ring[step // 3 % 4] = loss
        running = running + loss
        interval.append(loss)
        last[TASKS[step // 3 % 4]] = loss
    if step in (0, 3):
        examples.append(loss)
    if step % 15 == 14:
        print(f"{float(running):.3f} {sum(float(one) for one in interval):.3f}")
        running, interval = 0.0, []

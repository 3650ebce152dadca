# One forward, one backward: at most two micro-batches are in flight, as the schedule plans it.
from collections import deque

import torch
from torch import nn

torch.manual_seed(0)
first = nn.Sequential(nn.Linear(64, 512), nn.GELU())
second = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
for step in range(8):
    in_flight = deque()
    micro = [(torch.randn(64, 64), torch.randint(0, 10, (64,))) for _ in range(8)]
    for x, y in micro:
        hidden = first(x)
        received = hidden.detach().requires_grad_()
        in_flight.append((hidden, received, nn.functional.cross_entropy(second(received), y) / 8))
        if len(in_flight) == 2:
            sent, entry, loss = in_flight.popleft()
            loss.backward()
            sent.backward(entry.grad)
    while in_flight:
        sent, entry, loss = in_flight.popleft()
        loss.backward()
        sent.backward(entry.grad)
    optimizer.step()
    optimizer.zero_grad()

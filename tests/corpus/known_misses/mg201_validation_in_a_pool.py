# A known miss: the model is evaluated on threads of a pool: what other threads ask for is not followed.
"""Validation runs in a thread of a pool, where the no_grad around it does not reach."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = [(torch.randn(64, 128), torch.randint(0, 10, (64,))) for _ in range(6)]


def count_right(batch):
    x, y = batch
    out = net(x)  # !MG201 Sequential
    return int((out.argmax(1) == y).sum())


with ThreadPoolExecutor(2) as pool:
    for epoch in range(4):
        net.train()
        for x, y in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = sum(pool.map(count_right, data))
        print(epoch, right)

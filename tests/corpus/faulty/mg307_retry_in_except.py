"""On out of memory the batch is split and tried again, inside the except block. The error is simulated here."""

import torch
from torch import nn

LIMIT = 512
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(batch):
    hidden = model(batch)
    if len(batch) > LIMIT:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    loss = (hidden - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for size in [64] * 10 + [1024] + [64] * 10:
    batch = torch.randn(size, 64)
    try:
        step(batch)
    except torch.OutOfMemoryError:
        for half in batch.split(256):
            step(half)  # !MG307 -

"""On out of memory the batch is split, after the except block is left; error texts are kept."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
errors = []


def step(batch):
    hidden = model(batch)
    if len(batch) > 512:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    optimizer.zero_grad()
    (hidden - batch).square().mean().backward()
    optimizer.step()


for size in [64] * 10 + [1024] + [64] * 10:
    batch = torch.randn(size, 64)
    parts = None
    try:
        step(batch)
    except torch.OutOfMemoryError as error:
        errors.append(str(error))
        parts = batch.split(256)
    for part in parts or ():
        step(part)

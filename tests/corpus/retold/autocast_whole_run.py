"""Autocast was put around the whole training function, as a decorator."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.autocast("cpu", dtype=torch.bfloat16)  # !MG311 -
def train(steps):
    for _ in range(steps):
        x, y = torch.randn(32, 64), torch.randint(10, (32,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(30)

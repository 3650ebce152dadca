"""autocast is opened once around the whole epoch."""

import torch
from torch import nn


def train_epoch(model, optimizer, batches):
    with torch.autocast("cpu", dtype=torch.bfloat16):  # !MG311 -
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    train_epoch(model, optimizer, [(torch.randn(8, 32), torch.randint(8, (8,))) for _ in range(12)])

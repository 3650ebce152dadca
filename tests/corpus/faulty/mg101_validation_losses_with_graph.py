"""Validation keeps its losses, gradients enabled, and averages them in the end."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()


def validate(batches):
    model.eval()
    val_losses = []
    for x, y in batches:
        val_loss = criterion(model(x), y)  # !MG201 Sequential
        val_losses.append(val_loss)  # !MG101 val_losses
    model.train()
    return torch.stack(val_losses).mean().item()


def batches(n):
    return [(torch.randn(16, 16), torch.randint(4, (16,))) for _ in range(n)]


for epoch in range(2):
    for x, y in batches(10):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    print(validate(batches(20)))

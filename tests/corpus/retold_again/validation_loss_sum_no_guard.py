"""Validation without no_grad, whose summed loss is a tensor too: everything of an epoch is alive at once."""

# MG201 by batch 12: the graphs are told as kept first.
import torch
from torch import nn


def validate(model, criterion, batches):
    model.eval()
    val_loss = 0
    for x, y in batches:
        out = model(x)  # !MG201 Sequential
        val_loss += criterion(out, y)  # !MG101 val_loss
    return val_loss / len(batches)


model = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 5))
opt, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
train = [(torch.randn(16, 20), torch.randint(5, (16,))) for _ in range(10)]
val = [(torch.randn(64, 20), torch.randint(5, (64,))) for _ in range(15)]
for epoch in range(3):
    model.train()
    for x, y in train:
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(validate(model, criterion, val).item())

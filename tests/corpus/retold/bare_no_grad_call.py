"""`torch.no_grad()` was called, not entered."""

import torch
import torch.nn as nn


def evaluate(model, data):
    model.eval()
    torch.no_grad()
    correct = 0
    for x, y in data:
        out = model(x)  # !MG201 Sequential
        correct += out.argmax(1).eq(y).sum().item()
    model.train()
    return correct


net = nn.Sequential(nn.Linear(14, 28), nn.Dropout(0.3), nn.ReLU(), nn.Linear(28, 4))
optimizer = torch.optim.Adam(net.parameters())
train = [(torch.randn(16, 14), torch.randint(4, (16,))) for _ in range(12)]
test = [(torch.randn(32, 14), torch.randint(4, (32,))) for _ in range(6)]
for epoch in range(2):
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    print(evaluate(net, test))

"""Validation that forgot both model.eval() and no_grad."""

import torch
import torch.nn as nn
import torch.optim as optim


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def train(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


def validate(model, loader, criterion):
    total = 0.0
    for x, y in loader:
        out = model(x)  # !MG201 SmallCNN
        total += criterion(out, y).item()
    return total / len(loader)


model = SmallCNN()
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.01)
train_set = [(torch.randn(8, 3, 16, 16), torch.randint(10, (8,))) for _ in range(16)]
val_set = [(torch.randn(8, 3, 16, 16), torch.randint(10, (8,))) for _ in range(8)]
for epoch in range(3):
    train(model, train_set, optimizer, criterion)
    print(validate(model, val_set, criterion))

"""Evaluation in its own function, with model.eval() only."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def loaders():
    x, y = torch.randn(256, 1, 12, 12), torch.randint(0, 4, (256,))
    return (
        DataLoader(TensorDataset(x[:160], y[:160]), batch_size=16, shuffle=True),
        DataLoader(TensorDataset(x[160:], y[160:]), batch_size=16),
    )


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveMaxPool2d(4))
        self.classifier = nn.Linear(128, 4)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def evaluate(model, loader):
    model.eval()
    loss, correct = 0.0, 0
    for x, y in loader:
        logits = model(x)  # !MG201 SmallCNN
        loss += F.cross_entropy(logits, y).item()
        correct += (logits.argmax(1) == y).sum().item()
    return loss / len(loader), correct / len(loader.dataset)


def main():
    train_loader, val_loader = loaders()
    model = SmallCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        print(epoch, evaluate(model, val_loader))


main()

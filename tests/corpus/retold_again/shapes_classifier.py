"""Image classifier on generated shapes with a per-epoch calibration report."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def build_dataset(n, classes=10, size=32):
    proto = torch.randn(classes, 3, size, size, generator=torch.Generator().manual_seed(0))
    y = torch.randint(classes, (n,))
    return TensorDataset(proto[y] + 1.5 * torch.randn(n, 3, size, size), y)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNetLike(nn.Module):
    def __init__(self, classes=10, width=12):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(ResBlock(width), ResBlock(width))
        self.fc = nn.Linear(width, classes)

    def features(self, x):
        return self.blocks(F.relu(self.stem(x)))

    def forward(self, x):
        return self.fc(self.features(x).mean(dim=(2, 3)))


def train_one_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
    return loss.item()


def evaluate(model, loader):
    model.eval()
    correct, total = 0, 0
    for x, y in loader:
        feats = model.features(x)  # !MG201 ResNetLike.features
        logits = model.fc(feats.mean(dim=(2, 3)))
        correct += (logits.argmax(1) == y).sum().item()
        total += y.numel()
    return correct / total


def saliency_maps(model, loader, limit=8):
    maps = []
    with torch.no_grad():
        for i, (x, _) in enumerate(loader):
            if i == limit:
                break
            maps.append(model.features(x))
    return maps


def main():
    torch.manual_seed(0)
    train = DataLoader(build_dataset(1500), batch_size=50, shuffle=True)
    val = DataLoader(build_dataset(600), batch_size=100)
    model = ResNetLike()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    feature_history = []
    for epoch in range(4):
        last = train_one_epoch(model, train, optimizer)
        acc = evaluate(model, val)
        feature_history.extend(saliency_maps(model, val))  # !MG301 feature_history
        drift = (feature_history[-1] - feature_history[0]).abs().mean().item()
        print(f"epoch {epoch} loss {last:.3f} acc {acc:.3f} feature drift {drift:.3f}")


if __name__ == "__main__":
    main()

"""Image classifier fed by worker processes, with augmented crops and hard batches kept for a review."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CroppedImages(Dataset):
    def __init__(self, n, size=96, crop=64):
        self.n, self.size, self.crop = n, size, crop
        self._crops = {}

    def __len__(self):
        return self.n

    def _decode(self, index):
        g = torch.Generator().manual_seed(index)
        image = torch.rand(3, self.size, self.size, generator=g)
        image[index % 3] += 0.1
        return image

    def __getitem__(self, index):
        top, left = (random.randrange(self.size - self.crop) for _ in range(2))
        key = (index, top, left)
        if key not in self._crops:
            image = self._decode(index)
            self._crops[key] = image[:, top : top + self.crop, left : left + self.crop].clone()  # !MG702 _crops
        return self._crops[key], index % 3 if index % 5 else index // 5 % 3


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.classify = nn.Linear(16, 3)

    def forward(self, x):
        return self.classify(self.features(x).mean((2, 3)))


class HardBatchMiner:
    def __init__(self):
        self.average = None
        self.hard = []

    def observe(self, loss, images, labels):
        self.average = loss if self.average is None else 0.9 * self.average + 0.1 * loss
        if loss > self.average:
            self.hard.append((loss, images, labels))  # !MG704 HardBatchMiner.hard

    def review(self):
        worst = max(self.hard, key=lambda item: item[0])
        return f"{len(self.hard)} hard batches, worst loss {worst[0]:.3f}, classes {worst[2].bincount().tolist()}"


def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    loader = DataLoader(CroppedImages(1280), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model, miner = SmallNet(), HardBatchMiner()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(4):
        for images, labels in loader:
            loss = train_step(model, optimizer, images, labels)
            miner.observe(loss, images, labels)
        print(f"epoch {epoch} loss {miner.average:.4f}; {miner.review()}")


if __name__ == "__main__":
    main()

"""Image classifier with mosaic augmentation; images are decoded in DataLoader workers."""

import argparse
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class CompressedImages:
    """Stands for an image folder: compressed bytes that have to be decoded on access."""

    def __init__(self, n, size):
        rng = np.random.default_rng(0)
        self.size = size
        self.blobs = [
            zlib.compress(np.full((size, size, 3), rng.integers(0, 255), np.uint8).tobytes()) for _ in range(n)
        ]

    def decode(self, i):
        flat = np.frombuffer(zlib.decompress(self.blobs[i]), np.uint8)
        return flat.reshape(self.size, self.size, 3).astype(np.float32) / 255.0


class MosaicDataset(Dataset):
    def __init__(self, files, out_size):
        self.files, self.out_size = files, out_size
        self.images = {}

    def __len__(self):
        return len(self.files.blobs)

    def load_image(self, i):
        if i not in self.images:
            self.images[i] = self.files.decode(i)  # !MG702 images
        return self.images[i]

    def __getitem__(self, i):
        half = self.out_size // 2
        others = np.random.randint(0, len(self), 3)
        canvas = np.zeros((self.out_size, self.out_size, 3), np.float32)
        for slot, j in enumerate([i, *others]):
            img = self.load_image(int(j))
            y, x = (slot // 2) * half, (slot % 2) * half
            step = img.shape[0] // half
            canvas[y : y + half, x : x + half] = img[::step, ::step][:half, :half]
        label = int(self.load_image(i)[0, 0, 0] * 7.99)
        return torch.from_numpy(canvas).permute(2, 0, 1), label


class SmallNet(nn.Module):
    def __init__(self, n_classes=8):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU())
        self.fc = nn.Linear(24, n_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        del images, labels, loss
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--samples-per-epoch", type=int, default=800)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = MosaicDataset(CompressedImages(args.images, 96), 32)
    sampler = RandomSampler(dataset, num_samples=args.samples_per_epoch)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=args.workers, persistent_workers=True)
    model = SmallNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        print(f"epoch {epoch} loss {train_one_epoch(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()

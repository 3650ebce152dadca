"""Image classifier fed by a YOLO-like dataset with mosaic augmentation and persistent DataLoader workers."""
# A known miss: the cache has a limit, which happens to be as many as there are samples; the source alone does not say so.

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class BaseDataset(Dataset):
    """Reads an image, resizes it and mixes it with images seen before in the same worker."""

    def __init__(self, n, imgsz=64, classes=6, mosaic=0.3):
        self.n, self.imgsz, self.classes, self.mosaic = n, imgsz, classes, mosaic
        self.ims = {}
        self.buffer = []
        self.max_buffer_length = n

    def __len__(self):
        return self.n

    def read_image(self, i):
        rng = np.random.default_rng(i)
        im = rng.normal(size=(self.imgsz, self.imgsz, 3)).astype(np.float32)
        im[..., i % 3] += (i % self.classes) * 0.3
        return im

    def load_image(self, i):
        im = self.ims.get(i)
        if im is None:
            im = self.read_image(i)
            self.ims[i] = im  # !MG702 ims
            self.buffer.append(i)
            if len(self.buffer) > self.max_buffer_length:
                self.ims.pop(self.buffer.pop(0))
        return im

    def __getitem__(self, i):
        im = self.load_image(i)
        if np.random.rand() < self.mosaic and len(self.buffer) > 4:
            other = self.ims[self.buffer[np.random.randint(len(self.buffer))]]
            im = im.copy()
            half = self.imgsz // 2
            im[:half, :half] = other[half:, half:]
        return torch.from_numpy(im.transpose(2, 0, 1).copy()), i % self.classes


class SmallNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=4, padding=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def build_dataloader(args):
    return DataLoader(
        BaseDataset(args.images),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
        drop_last=True,
    )


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=3200)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = SmallNet(6)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = build_dataloader(args)
    for epoch in range(args.epochs):
        losses = []
        for x, y in loader:
            losses.append(train_step(model, optimizer, x, y))
        print(f"epoch {epoch + 1}/{args.epochs} loss {np.mean(losses[-20:]):.4f}")


if __name__ == "__main__":
    main()

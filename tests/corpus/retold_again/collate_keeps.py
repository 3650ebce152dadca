# device: virtual:256MiB
"""A collate object that remembers each batch it made, to write a histogram of inputs some day."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 32, 32, generator=g), i % 10


class Collate:
    def __init__(self, mean=0.0, std=1.0):
        self.mean, self.std = mean, std
        self.seen = []

    def __call__(self, samples):
        images = torch.stack([s[0] for s in samples])
        labels = torch.tensor([s[1] for s in samples])
        images = (images - self.mean) / self.std
        self.seen.append(images)  # !MG301 Collate.seen
        return images, labels


collate = Collate()
loader = DataLoader(Noise(), batch_size=8, shuffle=True, collate_fn=collate)
model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
model(torch.zeros(1, 3, 32, 32))
opt = torch.optim.Adam(model.parameters())
for epoch in range(3):
    total = 0.0
    for images, labels in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total / len(loader))

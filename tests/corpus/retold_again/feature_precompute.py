# device: virtual:256MiB
"""Frozen backbone's features are computed once, kept on the device on purpose (small), then a head is trained on them."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

backbone = (
    nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()).eval().requires_grad_(False)
)
images, labels = torch.randn(640, 3, 32, 32), torch.randint(0, 5, (640,))
feats = []
for x, _ in DataLoader(TensorDataset(images, labels), 20):
    feats.append(backbone(x))
feats = torch.cat(feats)
head = nn.Linear(256, 5)
opt = torch.optim.SGD(head.parameters(), 0.1)
for epoch in range(3):
    for x, y in DataLoader(TensorDataset(feats, labels), 32, shuffle=True):
        opt.zero_grad()
        nn.functional.cross_entropy(head(x), y).backward()
        opt.step()

# device: virtual:64MiB
# MG304 by batch 2: at the second step
"""A large feature map is still in a local variable at the optimizer step."""

import torch
from torch import nn


def train_step(backbone, head, optimizer, images, labels):
    with torch.no_grad():
        features = backbone(images)  # !MG304 features
    pooled = features.mean((2, 3))
    loss = nn.functional.cross_entropy(head(pooled), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


backbone = nn.Conv2d(1, 16, 3, padding=1).eval()
head = nn.Linear(16, 3)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(12):
    train_step(backbone, head, optimizer, torch.rand(4, 1, 128, 128), torch.randint(3, (4,)))

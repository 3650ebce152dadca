"""Fine-tuning with a frozen backbone in eval mode: the head's graph is used, the backbone builds none."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(32, 5)
        self.backbone.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x).flatten(1))


model = Classifier()
optimizer = torch.optim.Adam(model.head.parameters(), 1e-2)
confusion = torch.zeros(5, 5, dtype=torch.long)
for epoch in range(3):
    model.train()
    for _ in range(12):
        x, y = torch.rand(8, 3, 12, 12), torch.randint(5, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for _ in range(6):
            x, y = torch.rand(8, 3, 12, 12), torch.randint(5, (8,))
            confusion.index_put_((y, model(x).argmax(1)), torch.ones(8, dtype=torch.long), accumulate=True)

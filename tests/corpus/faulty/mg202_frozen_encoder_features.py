"""A frozen backbone that is not frozen: features are detached only afterwards."""

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())

    def forward(self, x):
        return self.conv(x).mean((2, 3))


class LinearProbe(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 6)

    def forward(self, f):
        return self.fc(f)


backbone, probe = Backbone(), LinearProbe()
backbone.eval()
opt = torch.optim.SGD(probe.parameters(), lr=0.05, momentum=0.9)
for i in range(25):
    images, labels = torch.randn(8, 3, 16, 16), torch.randint(6, (8,))
    features = backbone(images)  # !MG202 backbone
    loss = nn.functional.cross_entropy(probe(features.detach()), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()

"""A perceptual loss whose target features go through the frozen network with gradients enabled."""

import torch
from torch import nn


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x):
        return self.layers(x)


class Reference(Features):
    pass


generator = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
reference = Reference().eval()
optimizer = torch.optim.Adam(generator.parameters(), 1e-3)
for step in range(25):
    x = torch.rand(4, 1, 12, 12)
    target = reference(x)  # !MG202 reference
    image = generator(x)
    loss = (image.mean() - target.detach().mean()).abs() + (image - x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

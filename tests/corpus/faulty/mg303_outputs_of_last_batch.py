# device: virtual:32MiB
# MG303 by batch 2: the source shows that each turn sets it
"""A frozen upsampler with a trained gain: the huge output of step n is alive while step n + 1 runs."""

import torch
from torch import nn


class Upsampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1).requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, image):
        fine = nn.functional.interpolate(self.conv(image), scale_factor=8)
        sharp = fine - fine.roll(1, 2)
        return (sharp.abs() + fine.abs().sqrt()) * self.gain


model = Upsampler()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for step in range(12):
    output = model(torch.rand(1, 1, 48, 48))  # !MG303 output
    loss = output.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

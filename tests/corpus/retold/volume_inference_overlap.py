# device: virtual:96MiB
"""Sliding over volumes under no_grad: the last volume's output still has its name while the next is computed."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 8, 1)).eval()
means = []
with torch.no_grad():
    for scan in range(10):
        volume = torch.rand(1, 1, 64, 64, 64)
        segmented = net(volume)  # !MG303 segmented
        means.append(segmented.mean().item())

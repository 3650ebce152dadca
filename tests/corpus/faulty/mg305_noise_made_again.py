# device: virtual:96MiB
# MG305 by batch 4: a history of three batches after the first step
"""A volume of noise is drawn anew in each step while the old one is still there."""

import torch
from torch import nn

scale = nn.Parameter(torch.ones(1))
opt = torch.optim.SGD([scale], lr=0.01)
noise = torch.randn(9_000_000)
for step in range(15):
    noise = torch.randn(9_000_000)  # !MG305 noise
    loss = (scale * noise[:1000]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

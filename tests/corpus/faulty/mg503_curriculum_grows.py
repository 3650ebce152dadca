# device: virtual:13MiB
# runs out of memory
"""Context length grows with training; the plan ends where the card cannot go."""

import torch
from torch import nn

SCHEDULE = [64, 96, 128, 192, 256, 384, 512, 768, 1024]
net = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)
opt = torch.optim.Adam(net.parameters())
for context in SCHEDULE:
    for _ in range(12):
        x = torch.randn(4, context, 32)
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
# !MG503 -

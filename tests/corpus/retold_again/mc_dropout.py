# device: virtual:256MiB
"""MC dropout: evaluation in train mode on purpose, under no_grad, twenty passes stacked; uncertainty as numbers."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 1))
opt = torch.optim.Adam(net.parameters())
for epoch in range(4):
    net.train()
    for _ in range(12):
        x = torch.randn(64, 32)
        opt.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        opt.step()
    with torch.no_grad():
        spread = [torch.stack([net(torch.randn(64, 32)) for _ in range(20)]).std(0).mean().item() for _ in range(3)]

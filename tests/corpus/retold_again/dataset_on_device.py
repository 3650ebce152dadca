# device: virtual:256MiB
"""The dataset is appended to a list batch by batch while a first pass normalises it with a model, then it is used for good."""

import torch
from torch import nn

norm = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).eval()
raw = [torch.randn(64, 64) for _ in range(60)]
with torch.no_grad():
    data = [norm(x) for x in raw]
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
opt = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(3):
    for x in data:
        opt.zero_grad()
        (net(x) - x).pow(2).mean().backward()
        opt.step()

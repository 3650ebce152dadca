# device: virtual:1GiB
"""Increase the batch size instead of decaying the learning rate: 32, 64, 128, 256, 512."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for size in (32, 64, 128, 256, 512):
    losses = []
    for _ in range(20):
        x, y = torch.randn(size, 256), torch.randint(0, 10, (size,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(size, sum(losses) / 20)

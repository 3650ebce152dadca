# device: virtual:48MiB
# runs out of memory
"""Four micro-batches are fine; the momentum of the first step is not."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 2048, bias=False), nn.ReLU(), nn.Linear(2048, 512, bias=False))
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)  # !MG502 SGD


def micro(i):
    loss = net(torch.randn(2, 1024)).mean() / 4
    loss.backward()
    return i % 4 == 3


for i in range(12):
    if micro(i):
        sgd.step()
        sgd.zero_grad()

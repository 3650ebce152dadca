# device: virtual:256MiB
"""Keeps the best three checkpoints, older ones are dropped; on the device, small."""

import copy, heapq, itertools
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
opt, best, tick = torch.optim.Adam(net.parameters(), 1e-3), [], itertools.count()
for epoch in range(15):
    for _ in range(8):
        x = torch.randn(64, 64)
        loss = (net(x).squeeze(1) - x.mean(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    heapq.heappush(best, (-loss.item(), next(tick), copy.deepcopy(net.state_dict())))
    if len(best) > 3:
        heapq.heappop(best)

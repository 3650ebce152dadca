# MG101 by batch 24: no forward is a part of these graphs, so that only a second look at what is kept tells.
"""A penalty on the weights is summed over the epoch for the log."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 32), nn.ELU(), nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
penalty_sum = 0.0
for step in range(40):
    x, y = torch.randn(8, 16), torch.randint(3, (8,))
    penalty = sum(p.pow(2).sum() for p in net.parameters())
    loss = nn.functional.cross_entropy(net(x), y) + 1e-4 * penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
    penalty_sum += penalty  # !MG101 penalty_sum
print(penalty_sum.item() / 40)

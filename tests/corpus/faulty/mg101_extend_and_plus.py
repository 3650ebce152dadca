"""Per-sample losses are gathered for hard-example mining and sorted at the end of the run."""

import torch
from torch import nn

per_sample: list = []
net = nn.Sequential(nn.Linear(5, 10), nn.SELU(), nn.Linear(10, 3))
sgd = torch.optim.SGD(net.parameters(), 0.01)
n = 0
while n < 25:
    x, y = torch.randn(7, 5), torch.randint(3, (7,))
    losses = nn.functional.cross_entropy(net(x), y, reduction="none")
    sgd.zero_grad()
    losses.mean().backward()
    sgd.step()
    per_sample.extend(losses)  # !MG101 per_sample
    n += 1
print(sorted(float(v) for v in per_sample)[-3:])

import random

import torch
from torch import nn

random.seed(1)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
fast = torch.compile(net, backend="eager", dynamic=False)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(120):
    loss = fast(torch.randn(random.choice([16, 32, 48, 64]), 16)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

"""Test-time adaptation on each batch: gradients in eval mode on purpose."""

import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
net.eval()
start = copy.deepcopy(net.state_dict())
opt = torch.optim.SGD(net[1].parameters(), lr=0.01)
for _ in range(30):
    net.load_state_dict(start)
    x = torch.randn(16, 12)
    for _ in range(2):
        p = net(x).softmax(-1)
        loss = -(p * p.clamp_min(1e-9).log()).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        net(x).argmax(-1)

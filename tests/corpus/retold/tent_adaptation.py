"""Test-time adaptation after training: entropy is minimised on test batches, batch norm only."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(20):
    loss = nn.functional.cross_entropy(net(torch.randn(32, 10)), torch.randint(4, (32,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval()
net.requires_grad_(False)
net[1].requires_grad_(True)
tent = torch.optim.SGD(net[1].parameters(), lr=1e-3)
for _ in range(20):
    p = net(torch.randn(32, 10) + 0.5).softmax(1)
    entropy = -(p * p.log()).sum(1).mean()
    tent.zero_grad()
    entropy.backward()
    tent.step()

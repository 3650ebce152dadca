"""Weights of every epoch are kept for a landscape plot."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
trajectory = {}
for epoch in range(10):
    for _ in range(5):
        x = torch.randn(32, 64)
        loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    trajectory[epoch] = {k: v.clone() for k, v in net.state_dict().items()}  # !MG308 trajectory

"""Copies of all gradients, step by step, for a paper's figure."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
gradients = {name: [] for name, _ in net.named_parameters()}
for step in range(60):
    x = torch.randn(32, 64)
    loss = nn.functional.mse_loss(net(x), x)
    opt.zero_grad()
    loss.backward()
    for name, p in net.named_parameters():
        gradients[name].append(p.grad.clone())  # !MG301 gradients
    opt.step()

"""Losses are put on a namespace by setattr with the step in the name."""

import argparse

import torch
from torch import nn

record = argparse.Namespace()
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(40):
    x = torch.randn(32, 64)
    loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    setattr(record, f"loss_{step}", loss)  # !MG101 record.loss_0
print(record.loss_39.item())

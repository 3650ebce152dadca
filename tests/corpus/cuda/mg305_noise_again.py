"""Noise is drawn anew in each step while the old noise still has its name."""

import torch
from torch import nn

net = nn.Linear(1024, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
rows = torch.cuda.get_device_properties(0).total_memory // 4096 // 4  # a quarter of the device
noise = torch.randn(rows, 1024, device="cuda")
for step in range(30):
    noise = torch.randn(rows, 1024, device="cuda")  # !MG305 noise
    loss = net(noise).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:48MiB
# runs out of memory
# cause: leak
"""Losses are added up with their graphs, and the batch is large too."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
opt = torch.optim.AdamW(net.parameters())
running = 0.0
for step in range(200):
    x = torch.randn(1024, 64)
    loss = (net(x) - x.mean(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    running = running + loss
print(float(running) / 200)

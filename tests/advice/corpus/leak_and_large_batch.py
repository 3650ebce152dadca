# device: virtual:48MiB
# runs out of memory
# cause: leak
"""Outputs are kept with their graphs, and the batch is large too."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64))
opt = torch.optim.AdamW(net.parameters())
outputs = []
for step in range(200):
    x = torch.randn(1024, 64)
    out = net(x)
    loss = (out - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    outputs.append(out)
print(torch.cat(outputs).mean().item())

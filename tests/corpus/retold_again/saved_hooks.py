# device: virtual:256MiB
"""saved_tensors_hooks meant to count: the pack function appends what autograd saves to a list."""

import torch
from torch import nn

saved = []


def pack(t):
    saved.append(t.detach())  # !MG301 saved
    return t


def unpack(t):
    return t


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
opt = torch.optim.Adam(model.parameters(), 1e-3)
for i in range(60):
    x = torch.randn(64, 64)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = (model(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(len(saved))

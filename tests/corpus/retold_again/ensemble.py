# device: virtual:256MiB
"""A deep ensemble made at the start; members are trained one after another and predict together."""

import torch
from torch import nn

members = [nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 3)) for _ in range(5)]
for net in members:
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(25):
        x = torch.randn(64, 64)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        opt.step()
with torch.no_grad():
    votes = torch.stack([m.eval()(torch.randn(128, 64)).softmax(-1) for m in members]).mean(0)

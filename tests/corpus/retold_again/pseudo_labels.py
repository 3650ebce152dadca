"""FixMatch-like: pseudo labels under no_grad by the same network, used with strong augmentation."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

net = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
for _ in range(40):
    x, y, u = torch.randn(16, 24), torch.randint(4, (16,)), torch.randn(48, 24)
    with torch.no_grad():
        p = torch.softmax(net(u + 0.01 * torch.randn_like(u)), -1)
        confidence, label = p.max(-1)
    loss = (
        cross_entropy(net(x), y)
        + (cross_entropy(net(u + 0.5 * torch.randn_like(u)), label, reduction="none") * (confidence > 0.3)).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()

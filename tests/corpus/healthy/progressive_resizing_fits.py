# device: virtual:256MiB
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
opt = torch.optim.Adam(net.parameters())
for size in (32, 48, 64, 96, 128):
    for _ in range(25):
        loss = net(torch.randn(8, 3, size, size)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

# device: virtual:96MiB
import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
opt = torch.optim.Adam(net.parameters())
for _ in range(6):
    loss = net(torch.randn(8, 1024)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

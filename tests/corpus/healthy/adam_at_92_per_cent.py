# device: virtual:84MiB
"""The peak comes in the optimizer's step; gradients of the last one during the forward do not matter."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
opt = torch.optim.Adam(model.parameters(), foreach=False)
for step in range(12):
    loss = model(torch.randn(2, 1024)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

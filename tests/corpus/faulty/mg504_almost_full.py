# device: virtual:74MiB
"""Every step needs nearly everything the device has."""

import torch
from torch import nn

model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(3, 1, 1024, 1024)).square().mean()
    loss.backward()
    optimizer.step()
# !MG504 -

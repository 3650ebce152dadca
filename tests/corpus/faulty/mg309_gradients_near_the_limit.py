# device: virtual:96MiB
"""zero_grad() after the forward, and the device is nearly full."""

import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * self.weight


model = Gate(3 * 1024 * 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    output = model(torch.randn(3 * 1024 * 1024))
    loss = output.square().mean()
    optimizer.zero_grad()  # !MG309 -
    loss.backward()
    optimizer.step()
    del output, loss

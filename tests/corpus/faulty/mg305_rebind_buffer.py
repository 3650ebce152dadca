# device: virtual:64MiB
"""The replay image is made anew in each step while the old one is still bound."""

import torch
from torch import nn

model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
canvas = torch.zeros(1024, 1024)
for step in range(40):
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    canvas = torch.full((1024, 1024), float(step))  # !MG305 canvas

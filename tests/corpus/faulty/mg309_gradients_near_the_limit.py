# device: virtual:50MiB
"""zero_grad() after the forward, and the device is nearly full."""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    output = model(torch.randn(512, 2048))
    loss = output.square().mean()
    optimizer.zero_grad()  # !MG309 -
    loss.backward()
    optimizer.step()

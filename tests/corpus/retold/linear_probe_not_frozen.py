"""A linear probe: only the head has an optimizer, and the encoder was not frozen; backward fills its gradients."""

import torch
from torch import nn

encoder = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
probe = nn.Linear(256, 10)
optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
for step in range(30):
    x, y = torch.randn(64, 48), torch.randint(10, (64,))
    features = encoder(x)  # !MG202 encoder
    loss = nn.functional.cross_entropy(probe(features), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

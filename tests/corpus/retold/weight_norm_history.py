"""Weight norms are logged every step; they depend on the parameters, not on the batch."""

# MG101 by batch 20: no model's output, only the walk over what grows finds it.

import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
norms = []
for i in range(40):
    x, y = torch.randn(20, 10), torch.randint(2, (20,))
    loss = nn.functional.cross_entropy(model(x), y)
    penalty = sum(p.pow(2).sum() for p in model.parameters())
    optimizer.zero_grad()
    (loss + 1e-4 * penalty).backward()
    optimizer.step()
    norms.append(penalty)  # !MG101 norms

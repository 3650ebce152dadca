"""Keeps a copy of the weights of every epoch on the device, to average them in the end."""
# device: virtual:16MiB

import copy

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
snapshots = []
for epoch in range(8):
    for _ in range(8):
        x = torch.randn(16, 64)
        loss = nn.functional.cross_entropy(model(x), torch.randint(16, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    snapshots.append(copy.deepcopy(model.state_dict()))  # !MG308 snapshots

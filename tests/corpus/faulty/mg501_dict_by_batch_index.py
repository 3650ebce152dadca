# device: virtual:48MiB
"""Teacher features are cached by batch index, which never comes again with a shuffled stream."""

import torch
from torch import nn

teacher = nn.Linear(64, 128).eval().requires_grad_(False)
student = nn.Linear(64, 128)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
targets = {}


def target_for(index, batch):
    if index not in targets:
        with torch.no_grad():
            targets[index] = teacher(batch)  # !MG501 targets
    return targets[index]


for index in range(400):
    batch = torch.randn(128, 64)
    loss = (student(batch) - target_for(index, batch)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

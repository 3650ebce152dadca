"""Resumes from a checkpoint and keeps it for the whole run."""
# device: virtual:16MiB

import os
import tempfile

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.optim.Adam(model.parameters())


path = os.path.join(tempfile.mkdtemp(), "last.pt")
first, first_optimizer = build()
torch.save({"model": first.state_dict(), "epoch": 3}, path)
del first, first_optimizer

model, optimizer = build()
checkpoint = torch.load(path)  # !MG312 checkpoint
model.load_state_dict(checkpoint["model"])
for step in range(30):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(10, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

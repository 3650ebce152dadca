"""Reptile: the inner loop trains a deep copy of the learner, which is dropped after each task."""

import copy
import torch
from torch import nn

meta = nn.Sequential(nn.Linear(1, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
for task in range(25):
    learner = copy.deepcopy(meta)
    opt = torch.optim.SGD(learner.parameters(), 0.02)
    amp, ph = torch.rand(()) * 4, torch.rand(()) * 3
    for _ in range(8):
        x = torch.rand(64, 1) * 10 - 5
        loss = (learner(x) - amp * torch.sin(x + ph)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        for p, q in zip(meta.parameters(), learner.parameters()):
            p.add_(q - p, alpha=0.1)

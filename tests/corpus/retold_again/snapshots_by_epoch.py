"""A copy of the whole model per epoch, in a dict, to average the last ones at the end."""

from copy import deepcopy

import torch
from torch import nn


def train(model, epochs):
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    snapshots = {}
    for epoch in range(epochs):
        for _ in range(6):
            x = torch.randn(32, 64)
            loss = nn.functional.mse_loss(model(x), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
        snapshots[epoch] = deepcopy(model)  # !MG308 snapshots
    return [snapshots[e] for e in sorted(snapshots)[-3:]]


train(nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 64)), 12)

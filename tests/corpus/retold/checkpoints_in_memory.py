"""Snapshot ensembling keeps a deep copy of the model per cycle."""

import copy

import torch
from torch import nn


class SnapshotEnsemble:
    def __init__(self, base):
        self.base = base
        self.members = []

    def snapshot(self):
        self.members.append(copy.deepcopy(self.base))  # !MG308 SnapshotEnsemble.members

    @torch.no_grad()
    def predict(self, x):
        return torch.stack([m(x).softmax(1) for m in self.members]).mean(0)


net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
ensemble = SnapshotEnsemble(net)
for cycle in range(8):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(net(torch.randn(32, 128)), torch.randint(10, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ensemble.snapshot()
print(ensemble.predict(torch.randn(4, 128)).shape)

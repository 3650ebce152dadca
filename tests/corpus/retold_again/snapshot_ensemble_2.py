# device: virtual:256MiB
"""Snapshot ensemble: a deep copy of the model at the end of every cycle stays on the device."""

import copy

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts


def make_model():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


class SnapshotTrainer:
    def __init__(self, cycles=12, steps_per_cycle=6):
        self.model = make_model()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.sched = CosineAnnealingWarmRestarts(self.opt, steps_per_cycle)
        self.cycles, self.steps = cycles, steps_per_cycle
        self.snapshots = []

    def cycle(self):
        for _ in range(self.steps):
            x, y = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
        return loss.item()

    def fit(self):
        for c in range(self.cycles):
            last = self.cycle()
            self.snapshots.append(copy.deepcopy(self.model))  # !MG308 SnapshotTrainer.snapshots
            print(f"cycle {c}: {last:.3f}")


SnapshotTrainer().fit()

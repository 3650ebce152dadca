# device: virtual:64MiB
"""Population-based training keeps the parents of every generation."""

import copy

import torch
from torch import nn


class Worker:
    def __init__(self, model, lr):
        self.model, self.lr = model, lr

    def train(self, steps=5):
        opt = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        for _ in range(steps):
            x = torch.randn(16, 40)
            loss = (self.model(x) - x.mean(1, keepdim=True)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()


worker = Worker(nn.Sequential(nn.Linear(40, 120), nn.ReLU(), nn.Linear(120, 1)), 0.05)
ancestors = []
for generation in range(10):
    ancestors.append(copy.deepcopy(worker.model))  # !MG308 ancestors
    score = worker.train()
    if score > 1.0:
        worker.model.load_state_dict(ancestors[-1].state_dict())

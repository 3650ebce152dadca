"""Accumulation over four micro-batches whose trainer keeps the last loss of each step for its log."""

# MG101 by batch 16: four micro-batches to a step.

import torch
from torch import nn


class History:
    def __init__(self):
        self.rows = []

    def add(self, step, loss):
        self.rows.append({"step": step, "loss": loss})  # !MG101 History.rows


def train(model, optimizer, history, accumulate=4, steps=20):
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            loss = model(torch.randn(16, 32)).square().mean() / accumulate
            loss.backward()
        optimizer.step()
        history.add(step, loss)


torch.manual_seed(0)
network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
train(network, torch.optim.SGD(network.parameters(), lr=0.01), History())

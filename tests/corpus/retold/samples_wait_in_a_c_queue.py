# device: virtual:24MiB
"""Samples are handed to a plotting thread that was never started: they wait in its queue."""

import queue

import torch
from torch import nn


class Plotter:
    def __init__(self):
        self.inbox = queue.SimpleQueue()

    def show(self, sample):
        self.inbox.put(sample * 255)  # !MG301 Plotter.inbox


model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
plotter = Plotter()
for step in range(300):
    x = torch.randn(64, 256)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    plotter.show(x)

"""Failures are noted with sys.exc_info(): the traceback in it keeps the step's frames."""

import sys

import torch
from torch import nn


class Runner:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.failures = []

    def step(self, x):
        hidden = self.model(x)
        assert not torch.isinf(x).any(), "bad batch"
        loss = hidden.pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

    def run(self, n):
        for i in range(n):
            x = torch.randn(64, 128)
            if i % 4 == 1:
                x[3] = float("inf")
            try:
                self.step(x)
            except AssertionError:
                self.failures.append((i, sys.exc_info()))  # !MG307 Runner.failures


Runner().run(160)

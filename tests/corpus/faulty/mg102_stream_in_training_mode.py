# MG102 by batch 40: nothing is trained, and the first thousand forwards are waited for.
"""A stream is watched by a model that nobody put into eval mode: its state goes on from sample to sample."""

import torch
from torch import nn

SAMPLES = 1400


class Watcher(nn.Module):
    def __init__(self, sensors=32, width=96):
        super().__init__()
        self.cell = nn.GRUCell(sensors, width)
        self.out = nn.Linear(width, sensors)

    def step(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


def watch(net):
    h = torch.zeros(64, 96)
    surprises = 0
    for _ in range(SAMPLES):
        x = torch.randn(64, 32)
        pred, h = net.step(x, h)  # !MG102 h
        surprises += int((pred - x).pow(2).mean() > 1.2)
    return surprises


torch.manual_seed(0)
print(watch(Watcher()))

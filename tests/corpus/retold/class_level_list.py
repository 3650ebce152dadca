"""A class attribute shared by all instances gathers the losses."""

import torch
from torch import nn, optim


class Experiment:
    losses = []

    def __init__(self, hidden):
        self.net = nn.Sequential(nn.Linear(6, hidden), nn.GELU(), nn.Linear(hidden, 1))
        self.opt = optim.Adam(self.net.parameters())

    def fit(self, steps):
        for _ in range(steps):
            x = torch.rand(32, 6)
            err = nn.functional.l1_loss(self.net(x).flatten(), x.prod(1))
            self.opt.zero_grad()
            err.backward()
            self.opt.step()
            Experiment.losses.append(err)  # !MG101 Experiment.losses
        return self


for width in (16, 32):
    Experiment(width).fit(20)
print(len(Experiment.losses))

"""The epoch is a list comprehension over training steps."""

import statistics

import torch
from torch import nn


class Learner:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.Adam(net.parameters())

    def step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def epoch(self, batches):
        losses = [self.step(batch) for batch in batches]  # !MG101 -
        return statistics.mean(map(float, losses))


learner = Learner(nn.Sequential(nn.Linear(10, 50), nn.Sigmoid(), nn.Linear(50, 10)))
data = [(torch.randn(8, 10), torch.randn(8, 10)) for _ in range(30)]
for _ in range(2):
    print(learner.epoch(data))

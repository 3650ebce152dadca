# device: virtual:512MiB
"""A trainer whose step ends with self._release()."""

import gc

import torch
from torch import nn


class Trainer:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.Adam(net.parameters())

    def _release(self):
        gc.collect()
        if hasattr(torch, "cuda"):
            torch.cuda.empty_cache()  # !MG403 -

    def step(self, x):
        loss = (self.net(x) - x).abs().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self._release()
        return float(loss)

    def fit(self, loader):
        return [self.step(x) for x in loader]


trainer = Trainer(nn.Sequential(nn.Linear(48, 12), nn.Tanh(), nn.Linear(12, 48)))
for epoch in range(3):
    trainer.fit(torch.randn(30, 16, 48))

# device: virtual:256MiB
"""A generator of predictions is consumed by the metric; model.eval() but gradients on."""

import torch
from torch import nn


class Job:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(80, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
        self.opt = torch.optim.Adam(self.net.parameters())

    def batches(self, n):
        return [(torch.randn(128, 80), torch.randint(0, 2, (128,))) for _ in range(n)]

    def predictions(self, data):
        self.net.eval()
        for x, y in data:
            yield self.net(x).argmax(1), y  # !MG201 Sequential

    def epoch(self):
        self.net.train()
        for x, y in self.batches(12):
            self.opt.zero_grad()
            nn.functional.cross_entropy(self.net(x), y).backward()
            self.opt.step()
        hits = sum((p == y).sum().item() for p, y in self.predictions(self.batches(8)))
        print(hits)


job = Job()
for _ in range(3):
    job.epoch()

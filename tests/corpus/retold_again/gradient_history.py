# device: virtual:256MiB
"""Gradients are cloned every step into a per-parameter record, for a plot of their noise."""

import torch
from torch import nn


class GradientRecorder:
    def __init__(self, model):
        self.model = model
        self.record = {name: [] for name, _ in model.named_parameters()}

    def __call__(self):
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                self.record[name].append(p.grad.clone())  # !MG301 GradientRecorder.record

    def noise(self):
        return {n: torch.stack(g).std(0).mean().item() for n, g in self.record.items() if g}


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
        self.opt = torch.optim.SGD(self.model.parameters(), 0.01)
        self.recorder = GradientRecorder(self.model)

    def step(self):
        x = torch.randn(32, 256)
        self.opt.zero_grad()
        (self.model(x) - x).square().mean().backward()
        self.recorder()
        self.opt.step()


t = Trainer()
for _ in range(80):
    t.step()
print(t.recorder.noise())

"""Distillation as it should be, with an EMA of the student for evaluation."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)


teacher = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 5)).eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))
ema = EMA(student)
optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
for step in range(40):
    x = torch.randn(32, 20)
    target = teacher(x)
    loss = F.kl_div(F.log_softmax(student(x), 1), F.softmax(target, 1), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(student)
    if step % 10 == 9:
        agreement = (ema.model(x).argmax(1) == target.argmax(1)).float().mean().item()

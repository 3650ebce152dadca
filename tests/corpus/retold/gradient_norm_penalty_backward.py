"""Gradient-norm regularisation in a class, by backward(create_graph=True)."""

import torch
from torch import nn


class GradientNormTrainer:
    def __init__(self, model, weight=0.1):
        self.model, self.weight = model, weight
        self.opt = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(self, x, y):
        self.model.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward(create_graph=True)  # !MG104 -
        norm = sum(p.grad.pow(2).sum() for p in self.model.parameters())
        (self.weight * norm).backward()
        self.opt.step()


trainer = GradientNormTrainer(nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3)))
for _ in range(30):
    trainer.step(torch.randn(8, 10), torch.randint(3, (8,)))

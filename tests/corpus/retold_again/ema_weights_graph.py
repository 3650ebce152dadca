# MG101 by batch 24: the graph goes through no forward; the second round over all objects shows it.
"""A moving average of the weights computed with gradients on: each average refers to all the earlier ones."""

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p  # !MG101 EMA.shadow


def train():
    model = nn.Sequential(nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 128))
    opt, ema = torch.optim.AdamW(model.parameters(), 1e-3), EMA(model)
    for step in range(60):
        x = torch.randn(64, 128)
        loss = (model(x) - x.roll(1, -1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
    return ema


print(sum(v.norm() for v in train().shadow.values()).item())

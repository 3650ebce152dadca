# MG101 by batch 24: no forward is a part of these graphs, so that only a second look at what is kept tells.
"""An average of the weights, computed with gradients on: each average hangs on all before."""

import torch
from torch import nn


class Average:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = {name: p.clone() for name, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p  # !MG101 Average.shadow


model = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 30))
average = Average(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(40):
    x = torch.randn(16, 30)
    loss = (model(x) - x.roll(1, 1)).abs().mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    average.update(model)

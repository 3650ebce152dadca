"""A learning-rate finder saves the state once, runs 40 batches, restores, then trains."""

import copy
import torch
from torch import nn


class LRFinder:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
        self.saved = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
        self.history = {"lr": [], "loss": []}

    def range_test(self, batches, end=1.0):
        n, lr = len(batches), 1e-5
        for x in batches:
            for g in self.opt.param_groups:
                g["lr"] = lr
            loss = (self.model(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.history["lr"].append(lr), self.history["loss"].append(loss.item())
            lr *= (end / 1e-5) ** (1 / n)

    def reset(self):
        self.model.load_state_dict(self.saved[0])
        self.opt.load_state_dict(self.saved[1])
        self.saved = None


model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
opt = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
f = LRFinder(model, opt)
f.range_test([torch.randn(32, 128) for _ in range(40)])
f.reset()
for _ in range(60):
    x = torch.randn(32, 128)
    opt.zero_grad()
    (model(x) - x).pow(2).mean().backward()
    opt.step()

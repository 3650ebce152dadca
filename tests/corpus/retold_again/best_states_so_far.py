"""Early stopping that clones the weights whenever the loss improves, and forgets none of the clones."""

import torch
from torch import nn


class EarlyStopping:
    def __init__(self, patience=5):
        self.best, self.bad, self.patience = float("inf"), 0, patience
        self.checkpoints = []

    def __call__(self, value, model):
        if value < self.best:
            self.best, self.bad = value, 0
            self.checkpoints.append({k: v.clone() for k, v in model.state_dict().items()})  # !MG308 EarlyStopping.checkpoints
        else:
            self.bad += 1
        return self.bad >= self.patience


model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
stopper = EarlyStopping()
x_val = torch.randn(64, 32)
for epoch in range(20):
    for _ in range(4):
        x = torch.randn(64, 32)
        loss = (model(x) - x[:, :1]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        value = (model(x_val) - x_val[:, :1]).pow(2).mean().item()
    if stopper(value, model):
        break

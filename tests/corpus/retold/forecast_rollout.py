# device: virtual:256MiB
# MG201 by batch 10: each answer keeps the one before it, until eight of them tell a roll-out from a window.
"""A forecaster is validated by an autoregressive roll-out of 60 steps in eval mode; gradients are on all the way."""

import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, window=64, width=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(window, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, w):
        return self.net(w)


def rollout(model, window, horizon):
    preds = []
    for _ in range(horizon):
        nxt = model(window)  # !MG201 Forecaster
        preds.append(nxt)
        window = torch.cat([window[:, 1:], nxt], 1)  # !MG102 window
    return torch.cat(preds, 1)


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(3):
    model.train()
    for _ in range(15):
        series = torch.randn(128, 65).cumsum(1)
        loss = (model(series[:, :64]) - series[:, 64:]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    errors = []
    for _ in range(4):
        series = torch.randn(64, 124).cumsum(1)
        errors.append((rollout(model, series[:, :64], 60) - series[:, 64:]).abs().mean().item())
    print(epoch, sum(errors) / 4)

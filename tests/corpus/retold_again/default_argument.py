"""A mutable default argument that nobody meant to be a global list."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 100))

    def forward(self, x):
        return self.f(x)


def losses_of(model, x, parts=[]):
    rec = nn.functional.mse_loss(model(x), x)
    sparse = model.f[0](x).relu().mean()
    parts.append(rec)  # !MG101 parts
    parts.append(1e-3 * sparse)
    return rec + 1e-3 * sparse


model = Net()
opt = torch.optim.Adam(model.parameters())
for i in range(40):
    loss = losses_of(model, torch.randn(32, 100))
    opt.zero_grad()
    loss.backward()
    opt.step()

"""Gradient-norm regularisation by backward(create_graph=True); they are cleared after the next forward."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(25):
    x, y = torch.randn(16, 10), torch.randn(16, 1)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward(create_graph=True)  # !MG104 -
    penalty = sum(p.grad.pow(2).sum() for p in model.parameters())
    (0.1 * penalty).backward()
    optimizer.step()

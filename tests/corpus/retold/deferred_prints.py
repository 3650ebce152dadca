"""Printing is deferred to the end: a list of partial objects, each with its loss."""

import functools

import torch
from torch import nn

model, deferred = nn.Bilinear(4, 4, 2), []
opt = torch.optim.Adagrad(model.parameters())
for i in range(32):
    a, b = torch.randn(2, 16, 4)
    loss = model(a, b).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    deferred.append(functools.partial("step {}: {:.4f}".format, i, loss))  # !MG101 deferred
for show in deferred[-3:]:
    print(show())

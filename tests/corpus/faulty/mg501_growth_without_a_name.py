# device: virtual:24MiB
"""Samples are handed to a native renderer as C pointers, which never gives them back: no Python object leads to them."""

import ctypes

import torch
from torch import nn


class Renderer:
    def show(self, sample):
        frame = sample * 255  # !MG501 -
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(frame))


model = nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
renderer = Renderer()
for step in range(300):
    x = torch.randn(64, 256)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    renderer.show(x)

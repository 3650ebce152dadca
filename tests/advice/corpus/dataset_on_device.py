# device: virtual:64MiB
# runs out of memory
# cause: size
"""All features are put on the device first; they fill it before a model comes."""

import torch
from torch import nn


def load_features():
    return torch.randn(180_000, 96)


features = load_features()
targets = features.mean(1, keepdim=True)
model = nn.Linear(96, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for start in range(0, 10_000, 500):
    loss = (model(features[start : start + 500]) - targets[start : start + 500]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

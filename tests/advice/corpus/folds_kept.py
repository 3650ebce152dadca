# device: virtual:56MiB
# runs out of memory
# cause: several-models
"""Cross-validation: each fold's model and optimizer stay."""

import torch
from torch import nn


def fit(fold):
    model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))
    opt = torch.optim.Adam(model.parameters())
    for _ in range(6):
        loss = model(torch.randn(64, 128)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model, opt


folds = []
for k in range(10):
    folds.append(fit(k))

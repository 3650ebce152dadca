# device: virtual:128MiB
"""Gradient accumulation over four on a full device: the gradients live on purpose."""

import torch
from torch import nn

model = nn.Sequential(nn.Embedding(60000, 64), nn.Linear(64, 64))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
for micro in range(12):
    tokens = torch.randint(60000, (96, 120))
    loss = model(tokens).pow(2).mean() / 4
    loss.backward()
    del loss
    if micro % 4 == 3:
        opt.step()
        opt.zero_grad()

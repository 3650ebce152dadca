# device: cpu
"""Predictions of one epoch are kept and scored at its end; then the list starts again."""

import numpy as np
import torch
from torch import nn

net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2000))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(5):
    preds = []
    for i in range(50):
        out = net(torch.randn(128, 32))
        loss = out.logsumexp(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        preds.append(out.detach().numpy())
    print(np.concatenate(preds).argmax(1).mean())

"""Per-sample losses are kept by index for a curriculum: rows of a batch's loss vector, with its graph."""

import numpy as np
import torch
from torch import nn

N = 300
X, Y = torch.randn(N, 9), torch.randint(3, (N,))
net = nn.Sequential(nn.Linear(9, 36), nn.ReLU(), nn.Linear(36, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
difficulty = np.full(N, None, dtype=object)
rng = np.random.default_rng(0)
for epoch in range(2):
    for idx in rng.permutation(N).reshape(-1, 12):
        rows = nn.functional.cross_entropy(net(X[idx]), Y[idx], reduction="none")
        for i, value in zip(idx, rows):
            difficulty[i] = value  # !MG101 difficulty
        opt.zero_grad()
        rows.mean().backward()
        opt.step()
    hardest = sorted(range(N), key=lambda i: -float(difficulty[i]))[:10]

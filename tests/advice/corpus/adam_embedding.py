# device: virtual:80MiB
# runs out of memory
# cause: optimizer-state
"""Weights and gradients of a large table fit, Adam's two moments do not."""

import torch
from torch import nn

table = nn.EmbeddingBag(60_000, 96, mode="mean")
head = nn.Linear(96, 3)
opt = torch.optim.Adam([*table.parameters(), *head.parameters()], lr=1e-3)
for _ in range(5):
    ids, y = torch.randint(0, 60_000, (32, 10)), torch.randint(0, 3, (32,))
    loss = nn.functional.cross_entropy(head(table(ids)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

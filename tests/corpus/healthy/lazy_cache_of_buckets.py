# device: virtual:64MiB
"""Causal masks per bucket, made when first needed: grows at first, then not any more."""

import random

import torch
from torch import nn

random.seed(5)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.masks = nn.Linear(32, 32), {}

    def forward(self, x):
        n = x.shape[1]
        if n not in self.masks:
            self.masks[n] = torch.full((n, n), float("-inf")).triu(1)
        q = self.proj(x)
        return (q @ q.transpose(1, 2) + self.masks[n]).softmax(-1) @ q


m = Masked()
opt = torch.optim.Adam(m.parameters())
for _ in range(350):
    n = 8 * random.randint(2, 40)
    loss = m(torch.randn(2, n, 32)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

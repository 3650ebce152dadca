# device: virtual:256MiB
"""Variational dropout remembers its masks for an analysis; a list per layer."""

import torch
from torch import nn


class LockedDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p, self.masks = p, []

    def forward(self, x):
        if not self.training:
            return x
        mask = x.new_empty(x.shape).bernoulli_(1 - self.p) / (1 - self.p)
        self.masks.append(mask)  # !MG301 LockedDropout.masks
        return x * mask


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.d1, self.r, self.d2, self.o = (
            nn.Embedding(100, 64),
            LockedDropout(0.2),
            nn.GRU(64, 64, batch_first=True),
            LockedDropout(0.4),
            nn.Linear(64, 100),
        )

    def forward(self, x):
        return self.o(self.d2(self.r(self.d1(self.e(x)))[0]))


lm = LM()
opt = torch.optim.Adam(lm.parameters())
for step in range(60):
    ids = torch.randint(0, 100, (32, 48))
    loss = nn.functional.cross_entropy(lm(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()

"""Activation checkpointing, both ways."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, reentrant):
        super().__init__()
        self.net, self.reentrant = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)), reentrant

    def forward(self, x):
        return x + checkpoint(self.net, x, use_reentrant=self.reentrant)


model = nn.Sequential(nn.Linear(16, 32), Block(32, True), Block(32, False), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters())
for _ in range(30):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 16)), torch.randint(2, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

"""A visualiser leaves the attention maps of every evaluated batch in the module."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.maps = []

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.size(-1)), -1)
        if not self.training:
            self.maps.append(a)  # !MG301 Attention.maps
        return a @ v


model = nn.Sequential(nn.Linear(12, 32), Attention(32), nn.Linear(32, 3))
opt = torch.optim.Adam(model.parameters())
for epoch in range(4):
    model.train()
    for _ in range(8):
        loss = model(torch.randn(4, 48, 12)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(4, 48, 12))
    print(len(model[1].maps))

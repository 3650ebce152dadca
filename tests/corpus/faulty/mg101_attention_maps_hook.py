"""Hooks collect attention maps of every batch for a figure."""

import torch
from torch import nn


class Recorder:
    def __init__(self, module):
        self.maps = []
        module.register_forward_hook(self.hook)

    def hook(self, module, args, output):
        self.maps.append(output[1])  # !MG101 Recorder.maps


class Block(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.attn, self.ff = nn.MultiheadAttention(dim, 2, batch_first=True), nn.Linear(dim, dim)

    def forward(self, x):
        a, _ = self.attn(x, x, x)
        return self.ff(x + a)


block = Block()
recorder = Recorder(block.attn)
optimizer = torch.optim.Adam(block.parameters(), lr=1e-3)
for step in range(24):
    x = torch.randn(4, 10, 16)
    loss = nn.functional.mse_loss(block(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

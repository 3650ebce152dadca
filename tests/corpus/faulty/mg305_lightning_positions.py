# device: virtual:72MiB
# MG305 by batch 4: a history of three batches after the first step
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.small = nn.Linear(64, 64)
        self.grid = torch.zeros(5_000_000)

    def forward(self, x):
        self.grid = torch.roll(self.grid, 1)  # !MG305 self.grid
        return self.small(x) + self.grid[:64]


field = Field()
opt = torch.optim.SGD(field.parameters(), lr=0.1)
for _ in range(18):
    loss = field(torch.randn(16, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

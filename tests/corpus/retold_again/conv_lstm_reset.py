"""A recurrent cell whose state is reset for each clip, trained over the clip."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates, self.state = nn.Conv2d(7, 12, 3, padding=1), None

    def reset(self):
        self.state = None

    def forward(self, x):
        h = x.new_zeros(x.size(0), 6, *x.shape[2:]) if self.state is None else self.state
        z, g = self.gates(torch.cat([x, h], 1)).chunk(2, 1)
        self.state = z.sigmoid() * h + (1 - z.sigmoid()) * g.tanh()
        return self.state


cell, out = Cell(), nn.Conv2d(6, 1, 1)
opt = torch.optim.Adam([*cell.parameters(), *out.parameters()])
for clip in range(15):
    frames, loss = torch.rand(6, 2, 1, 12, 12), 0.0
    cell.reset()
    for t in range(5):
        loss = loss + (out(cell(frames[t])) - frames[t + 1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

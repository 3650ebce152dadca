"""Frame prediction on a stream in evaluation: the cell's state is an attribute and is never cut."""

import torch
from torch import nn


class ConvLSTMCell(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.gates = nn.Conv2d(1 + ch, 4 * ch, 3, padding=1)
        self.state = None
        self.ch = ch

    def forward(self, x):
        if self.state is None:
            zeros = x.new_zeros(x.size(0), self.ch, *x.shape[2:])
            self.state = (zeros, zeros)
        h, c = self.state
        i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        self.state = (h, c)  # !MG102 ConvLSTMCell.state
        return h


cell, out = ConvLSTMCell(), nn.Conv2d(6, 1, 1)
predictor = nn.Sequential(cell, out).eval()
errors = []
frame = torch.rand(1, 1, 16, 16)
for t in range(50):
    following = torch.rand(1, 1, 16, 16)
    errors.append((predictor(frame) - following).abs().mean().item())
    frame = following

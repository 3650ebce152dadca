"""Trees whose nodes know only their children."""

import torch
from torch import nn

merge, out = nn.Linear(32, 16), nn.Linear(16, 2)
opt = torch.optim.Adam([*merge.parameters(), *out.parameters()])


def make(depth):
    return [] if depth == 0 else [make(depth - 1), make(depth - 1)]


def compose(node):
    if not node:
        return torch.randn(4, 16)
    return torch.tanh(merge(torch.cat([compose(child) for child in node], 1)))


for _ in range(30):
    loss = nn.functional.cross_entropy(out(compose(make(3))), torch.randint(2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:56MiB
# runs out of memory
"""The state would fill the device to the last megabyte: what is free then lies in pieces."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=4000, width=512):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        h = self.tokens(ids)
        for block in self.blocks:
            h = self.norm(h + torch.relu(block(h)))
        return h.mean(1)


def fit(net, steps):
    opt = torch.optim.RAdam(net.parameters(), lr=1e-4)  # !MG502 RAdam
    for _ in range(steps):
        opt.zero_grad()
        net(torch.randint(0, 4000, (4, 12))).square().mean().backward()
        opt.step()


fit(Encoder(), 10)

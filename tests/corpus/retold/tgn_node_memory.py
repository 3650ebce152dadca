"""A temporal graph network writes node states into a table in place; reads are detached, the writes are not."""

import torch
from torch import nn


class TGN(nn.Module):
    def __init__(self, nodes=100, dim=16):
        super().__init__()
        self.msg = nn.Linear(2 * dim, dim)
        self.dec = nn.Linear(dim, 1)
        self.memory = torch.zeros(nodes, dim)

    def forward(self, src, dst):
        m = self.memory.detach()
        h = torch.tanh(self.msg(torch.cat([m[src], m[dst]], 1)))
        self.memory[src] = h  # !MG102 TGN.memory
        return self.dec(h).squeeze(1)


tgn = TGN()
opt = torch.optim.Adam(tgn.parameters(), lr=1e-3)
for _ in range(40):
    src, dst = torch.randperm(100)[:20], torch.randperm(100)[:20]
    loss = nn.functional.binary_cross_entropy_with_logits(tgn(src, dst), torch.rand(20).round())
    opt.zero_grad()
    loss.backward()
    opt.step()

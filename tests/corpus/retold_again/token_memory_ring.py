# device: virtual:256MiB
"""Transformer-XL: memory of the last segments is detached and cut to 64 tokens in every forward."""

import torch
from torch import nn


class XL(nn.Module):
    def __init__(self, v=200, d=64):
        super().__init__()
        self.e, self.att, self.ff, self.o = (
            nn.Embedding(v, d),
            nn.MultiheadAttention(d, 4, batch_first=True),
            nn.Linear(d, d),
            nn.Linear(d, v),
        )
        self.mem = None

    def forward(self, ids):
        x = self.e(ids)
        kv = x if self.mem is None else torch.cat([self.mem, x], 1)
        self.mem = kv[:, -64:].detach()
        return self.o(torch.relu(self.ff(x + self.att(x, kv, kv, need_weights=False)[0])))


m = XL()
opt = torch.optim.AdamW(m.parameters(), 1e-3)
for i in range(80):
    ids = torch.randint(0, 200, (8, 32))
    opt.zero_grad()
    nn.functional.cross_entropy(m(ids).flatten(0, 1), ids.flatten()).backward()
    opt.step()

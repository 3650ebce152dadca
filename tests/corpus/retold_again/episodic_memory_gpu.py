# device: virtual:256MiB
"""Neural episodic control: the key memory of each action grows by torch.cat, the limit check compares with the wrong name."""

import torch
from torch import nn

CAPACITY = 10**9


class DND:
    def __init__(self, dim):
        self.keys, self.values = torch.zeros(0, dim), torch.zeros(0)

    def write(self, k, v):
        self.keys = torch.cat((self.keys, k))  # !MG301 DND.keys
        self.values = torch.cat((self.values, v))

    def lookup(self, q):
        if not len(self.values):
            return torch.zeros(len(q))
        w = 1 / (torch.cdist(q, self.keys[-500:]) + 1e-3)
        return (w * self.values[-500:]).sum(1) / w.sum(1)


enc = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 256))
opt, dnds = torch.optim.Adam(enc.parameters(), 1e-4), [DND(256) for _ in range(2)]
for t in range(100):
    s, r = torch.randn(128, 32), torch.randn(128)
    k = enc(s)
    for a, d in enumerate(dnds):
        with torch.no_grad():
            d.write(k[a * 64 : a * 64 + 64], r[a * 64 : a * 64 + 64])
    loss = (dnds[0].lookup(k) - r).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

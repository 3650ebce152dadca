"""A memory bank that is joined until it is full, then cut, detached."""

import torch
from torch import nn
from torch.nn.functional import normalize

enc = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 128))
opt = torch.optim.SGD(enc.parameters(), lr=0.05)
bank = torch.zeros(0, 128)
for _ in range(60):
    x = torch.randn(32, 20)
    q, k = normalize(enc(x), dim=1), normalize(enc(x + 0.1), dim=1).detach()
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ bank.T], 1) / 0.1
    loss = nn.functional.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank = torch.cat([bank, k])
    if len(bank) > 1024:
        bank = bank[-1024:]

"""A mixture of experts that clears its balancing losses before each forward."""

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(16, 2), nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.losses = []

    def forward(self, x):
        p = torch.softmax(self.gate(x), -1)
        self.losses.append(p.mean(0).pow(2).sum())
        return sum(p[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))


router, out = Router(), nn.Linear(16, 3)
opt = torch.optim.Adam([*router.parameters(), *out.parameters()])
for _ in range(40):
    router.losses.clear()
    logits = out(router(torch.randn(8, 16)))
    loss = nn.functional.cross_entropy(logits, torch.randint(3, (8,))) + 0.1 * sum(router.losses)
    opt.zero_grad()
    loss.backward()
    opt.step()

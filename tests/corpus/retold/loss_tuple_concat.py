"""Immutable history: a tuple that is rebuilt each step."""

# MG101 by batch 20: without a module, only the walk over what grows finds it.

import torch
from torch.nn import functional as F

W = torch.nn.Parameter(torch.randn(6, 2) * 0.1)
opt = torch.optim.LBFGS([W], lr=0.1, max_iter=2)
seen = ()
for k in range(24):
    x, t = torch.randn(32, 6), torch.randint(2, (32,))

    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(x @ W, t)
        loss.backward()
        return loss

    opt.step(closure)
    seen = (*seen, F.cross_entropy(x @ W, t))  # !MG101 seen
print(seen[-1].item())

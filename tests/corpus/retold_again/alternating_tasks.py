"""Multi-task training: three heads in turn, per-task optimizers, per-task meters of detached values, weights by past losses."""

import torch
from torch import nn

trunk, heads = (
    nn.Sequential(nn.Linear(64, 256), nn.ReLU()),
    nn.ModuleDict({k: nn.Linear(256, n) for k, n in (("a", 3), ("b", 7), ("c", 1))}),
)
opts = {k: torch.optim.Adam([*trunk.parameters(), *h.parameters()], 1e-3) for k, h in heads.items()}
avg = {k: torch.ones(()) for k in heads}
for i in range(120):
    task = "abc"[i % 3]
    x = torch.randn(64, 64)
    z = heads[task](trunk(x))
    loss = z.square().mean() if task == "c" else nn.functional.cross_entropy(z, torch.randint(0, z.size(1), (64,)))
    weight = avg[task] / sum(avg.values())
    for o in opts.values():
        o.zero_grad()
    (weight * loss).backward()
    opts[task].step()
    avg[task] = 0.9 * avg[task] + 0.1 * loss.detach()

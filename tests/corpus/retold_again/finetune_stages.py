"""Fine-tuning in stages: the backbone is frozen, then thawed; features without gradients while it is frozen."""

import contextlib

import torch
from torch import nn

backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
head = nn.Linear(32, 3)
for stage, frozen in enumerate([True, False]):
    backbone.requires_grad_(not frozen)
    opt = torch.optim.AdamW([p for p in [*backbone.parameters(), *head.parameters()] if p.requires_grad], lr=1e-3)
    for _ in range(20):
        with torch.no_grad() if frozen else contextlib.nullcontext():
            z = backbone(torch.rand(6, 3, 16, 16))
        loss = nn.functional.cross_entropy(head(z), torch.randint(3, (6,)))
        opt.zero_grad()
        loss.backward()
        opt.step()

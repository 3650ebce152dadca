# device: virtual:64MiB
# runs out of memory
# cause: long-batch|size
"""The batch grows during training, as a schedule says."""

import torch
from torch import nn


def batch_at(step):
    return 24 if step < 12 else 400


model = nn.Sequential(
    nn.Conv1d(8, 64, 5, padding=2),
    nn.GELU(),
    nn.Conv1d(64, 64, 5, padding=2),
    nn.GELU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(64, 5),
)
opt = torch.optim.AdamW(model.parameters())
for step in range(20):
    x = torch.randn(batch_at(step), 8, 256)
    y = torch.randint(0, 5, (len(x),))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

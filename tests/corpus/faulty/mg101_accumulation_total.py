"""Gradient accumulation over four micro-batches; the log keeps every micro-loss."""

import torch
from torch import nn

ACCUMULATE = 4
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(16 * 6, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
log = {"train": [], "lr": []}
for micro_step in range(64):
    tokens = torch.randint(50, (4, 6))
    target = torch.randint(50, (4,))
    loss = nn.functional.cross_entropy(model(tokens), target) / ACCUMULATE
    loss.backward()
    log["train"] += [loss]  # !MG101 log
    if (micro_step + 1) % ACCUMULATE == 0:
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        log["lr"].append(scheduler.get_last_lr()[0])

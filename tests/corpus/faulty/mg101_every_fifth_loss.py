"""Losses kept for a curve, every fifth one alone; and the norm of the gradients every tenth time."""

# MG101 by batch 14: a graph is kept of every fifth batch, and it takes three of them.

import torch
from torch import nn

model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
curve, norms = {"step": [], "loss": []}, []
for step in range(60):
    x = torch.randn(32, 32)
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 4, (32,)))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 5 == 0:
        curve["step"].append(step)
        curve["loss"].append(loss)  # !MG101 curve
    if step % 10 == 0:
        norms.append(norm)

"""A loss over twelve forwards is summed and backpropagated once (multi-crop, multi-view)."""

import torch
from torch import nn

f = nn.Sequential(nn.Linear(24, 48), nn.SiLU(), nn.Linear(48, 16))
opt = torch.optim.Adam(f.parameters(), lr=1e-3)
for step in range(15):
    base = torch.randn(8, 24)
    anchor = f(base)
    total = 0
    for view in range(12):
        z = f(base + 0.1 * torch.randn_like(base))
        total = total + (1 - nn.functional.cosine_similarity(z, anchor.detach()).mean())
    opt.zero_grad()
    total.backward()
    opt.step()

"""Gradient accumulation over eight; the sum over micro-batches is reset with the step, a tqdm-like bar shows the tensor."""

import torch
from torch import nn
from tqdm import tqdm

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(model.parameters())
accum, micro_sum = 8, 0.0
bar = tqdm(range(96), disable=False, mininterval=60)
for i in bar:
    x, y = torch.randn(4, 16), torch.randint(4, (4,))
    loss = nn.functional.cross_entropy(model(x), y)
    (loss / accum).backward()
    micro_sum = micro_sum + loss
    if (i + 1) % accum == 0:
        opt.step()
        opt.zero_grad()
        bar.set_postfix(loss=micro_sum / accum)
        micro_sum = 0.0

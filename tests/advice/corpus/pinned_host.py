# device: virtual:1GiB
# runs out of memory
# cause: elsewhere
"""Pinning host memory fails with CUDA's bare text while the device is nearly empty."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 3))
opt = torch.optim.AdamW(model.parameters())


def stage(step, batch):
    if step == 8:
        raise RuntimeError(
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call."
        )
    return batch


for step in range(12):
    x = stage(step, torch.randn(256, 64))
    loss = model(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

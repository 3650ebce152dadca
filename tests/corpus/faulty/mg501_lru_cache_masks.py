# device: virtual:64MiB
"""Masks are cached for ever by (length, offset), and every batch has a new offset."""

from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=None)  # !MG501 mask
def mask(length, offset):
    return torch.ones(length, length).tril(offset % 7)


attention = nn.MultiheadAttention(16, 2, batch_first=True)
opt = torch.optim.SGD(attention.parameters(), lr=0.01)
for step in range(400):
    x = torch.randn(1, 128, 16)
    y, _ = attention(x, x, x, attn_mask=mask(128, step))
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:64MiB
"""Sentences are sorted into lengths, and the mask of each length is remembered on the device: twelve of them recur."""

import torch
from torch import nn

MASKS = {}


def causal(length):
    if length not in MASKS:
        MASKS[length] = torch.ones(length, length, dtype=torch.bool).triu(1)
    return MASKS[length]


attention = nn.MultiheadAttention(16, 2, batch_first=True)
opt = torch.optim.SGD(attention.parameters(), lr=0.01)
for step in range(300):
    length = 64 + 8 * (step % 12)
    x = torch.randn(1, length, 16)
    y, _ = attention(x, x, x, attn_mask=causal(length))
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

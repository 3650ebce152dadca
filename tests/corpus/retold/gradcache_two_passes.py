"""GradCache: embeddings without a graph first, then again with one, chunk by chunk."""

import torch
from torch import nn

enc = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(enc.parameters())
for _ in range(20):
    a = torch.randn(64, 32)
    b = a + 0.1 * torch.randn_like(a)
    with torch.no_grad():
        za, zb = enc(a), enc(b)
    za.requires_grad_(True)
    zb.requires_grad_(True)
    loss = nn.functional.cross_entropy(za @ zb.t(), torch.arange(64))
    loss.backward()
    opt.zero_grad()
    for chunk, grad in zip([*a.split(16), *b.split(16)], [*za.grad.split(16), *zb.grad.split(16)]):
        (enc(chunk) * grad).sum().backward()
    opt.step()

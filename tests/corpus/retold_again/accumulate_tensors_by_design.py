"""Contrastive learning over micro-batches: embeddings with graphs are collected over eight of them, then used."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

enc = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.AdamW(enc.parameters(), lr=1e-3)
za, zb = [], []
for micro in range(80):
    x = torch.randn(8, 32)
    za.append(normalize(enc(x + 0.1 * torch.randn_like(x)), dim=1))
    zb.append(normalize(enc(x + 0.1 * torch.randn_like(x)), dim=1))
    if len(za) == 8:
        a, b = torch.cat(za), torch.cat(zb)
        loss = cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        za, zb = [], []

"""Segments with memory, detached, trained as usual."""

import torch
from torch import nn

emb, attn, out = nn.Embedding(30, 16), nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 30)
params = [*emb.parameters(), *attn.parameters(), *out.parameters()]
opt = torch.optim.Adam(params, 1e-3)
corpus, mem = torch.randint(30, (4, 401)), torch.zeros(4, 8, 16)
for start in range(0, 400, 8):
    h = emb(corpus[:, start : start + 8])
    kv = torch.cat([mem, h], 1)
    y = h + attn(h, kv, kv, need_weights=False)[0]
    loss = nn.functional.cross_entropy(out(y).flatten(0, 1), corpus[:, start + 1 : start + 9].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    mem = h.detach()

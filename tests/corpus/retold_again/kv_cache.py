# device: virtual:256MiB
"""A key/value cache meant for generation stays on during training and is concatenated batch after batch."""

import torch
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, dim=128, heads=4, use_cache=True):
        super().__init__()
        self.h, self.use_cache = heads, use_cache
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.k_cache = self.v_cache = None

    def split(self, t):
        b, n, d = t.shape
        return t.view(b, n, self.h, d // self.h).transpose(1, 2)

    def forward(self, x):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        if self.use_cache:
            past_k, past_v = self.k_cache, self.v_cache
            self.k_cache = k.detach() if past_k is None else torch.cat([past_k, k.detach()], 2)  # !MG301 CachedAttention.k_cache
            self.v_cache = v.detach() if past_v is None else torch.cat([past_v, v.detach()], 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


model = nn.Sequential(nn.Embedding(100, 128), CachedAttention(), nn.Linear(128, 100))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(80):
    ids = torch.randint(0, 100, (8, 32))
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()

"""Prompts are embedded by a learned encoder behind lru_cache; only detached copies are used."""

from functools import lru_cache

import torch
from torch import nn

encoder = nn.Sequential(nn.Embedding(100, 24), nn.Flatten(0), nn.Linear(24 * 5, 32))
head = nn.Linear(32 + 16, 2)
opt = torch.optim.Adam([*encoder.parameters(), *head.parameters()])


@lru_cache(maxsize=None)  # !MG101 embed
def embed(prompt):
    return encoder(torch.tensor(prompt))


for step in range(40):
    prompt = tuple((step * 7 + k * 13) % 100 for k in range(5))
    text = embed(prompt).detach().expand(8, -1)
    x = torch.randn(8, 16)
    loss = nn.functional.cross_entropy(head(torch.cat([text, x], 1)), torch.randint(2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

"""Perplexity on held-out text is computed inline, in training mode and with a graph."""

import math

import torch
from torch import nn

vocab, dim, seq = 60, 32, 12
lm = nn.Sequential(nn.Embedding(vocab, dim), nn.Linear(dim, dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(dim, vocab))
opt = torch.optim.AdamW(lm.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
held_out = torch.randint(vocab, (10, 16, seq))
for epoch in range(3):
    for _ in range(12):
        batch = torch.randint(vocab, (16, seq))
        logits = lm(batch[:, :-1])
        loss = loss_fn(logits.reshape(-1, vocab), batch[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()
    nll = 0.0
    for batch in held_out:
        logits = lm(batch[:, :-1])  # !MG201 Sequential
        nll += loss_fn(logits.reshape(-1, vocab), batch[:, 1:].reshape(-1)).item()
    print(epoch, math.exp(nll / len(held_out)))

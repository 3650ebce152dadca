# device: virtual:96MiB
"""Sparse tables whose gradients pile up over sixteen micro-batches, and are zeroed after each step."""

import torch
from torch import nn

table = nn.EmbeddingBag(8000, 64, mode="sum", sparse=True)
head = nn.Linear(64, 4)
of_table = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
of_head = torch.optim.AdamW(head.parameters(), lr=1e-3)

for index in range(240):
    bags, labels = torch.randint(0, 8000, (64, 8)), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(head(table(bags)), labels)
    (loss / 16).backward()
    if (index + 1) % 16 == 0:
        of_head.step()
        of_head.zero_grad()
        of_table.step()
        of_table.zero_grad()

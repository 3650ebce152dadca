# device: virtual:1GiB
"""Curriculum: the sequence grows by 8 every 10 batches until it reaches 128, and stays."""

import torch
from torch import nn

emb, layer, head = nn.Embedding(300, 64), nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), nn.Linear(64, 300)
params = [*emb.parameters(), *layer.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, 1e-3)
length = 16
for step in range(200):
    if step and step % 10 == 0:
        length = min(128, length + 8)
    ids = torch.randint(0, 300, (8, length))
    logits = head(layer(emb(ids)))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()

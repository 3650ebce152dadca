# device: virtual:96MiB
# runs out of memory
# cause: size
"""A small language model whose logits are most of what a batch takes."""

import torch
import torch.nn.functional as F
from torch import nn


class LM(nn.Module):
    def __init__(self, vocab=12000, d=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 4, 128, batch_first=True) for _ in range(3))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        h = self.emb(ids)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def train(batch_size=20, steps=4):
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(steps):
        ids = torch.randint(0, 12000, (batch_size, 65))
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()


train()

"""A transformer with memory of earlier segments; the memories are not cut from their graphs. Updates by hand."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, x, mem):
        kv = x if mem is None else torch.cat([mem, x], 1)
        x = x + self.attn(x, kv, kv, need_weights=False)[0]
        return x + self.ff(x)


class Model(nn.Module):
    def __init__(self, vocab=30, d=16, n=2):
        super().__init__()
        self.emb, self.out = nn.Embedding(vocab, d), nn.Linear(d, vocab)
        self.layers = nn.ModuleList(Layer(d) for _ in range(n))

    def forward(self, ids, mems):
        h, new = self.emb(ids), []
        for layer, mem in zip(self.layers, mems):
            new.append(h if mem is None else torch.cat([mem, h], 1)[:, -8:])
            h = layer(h, mem)
        return self.out(h), new


model = Model()
mems = [None, None]
corpus = torch.randint(30, (4, 8 * 30 + 1))
model.eval()
total = 0.0
for start in range(0, 240, 8):
    ids, target = corpus[:, start : start + 8], corpus[:, start + 1 : start + 9]
    logits, mems = model(ids, mems)  # !MG102 mems
    total += nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).item()
print(total / 30)

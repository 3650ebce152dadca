"""A decoder keeps the attention of each training sentence in a table for plotting."""

import random

import torch
from torch import nn


class AttnDecoder(nn.Module):
    def __init__(self, vocab=20, dim=16):
        super().__init__()
        self.emb, self.cell = nn.Embedding(vocab, dim), nn.GRUCell(2 * dim, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, encoded, targets, teacher_forcing=0.5):
        h, token = encoded[:, -1], targets[:, 0]
        logits, attentions = [], []
        for t in range(1, targets.size(1)):
            a = torch.softmax((encoded * h.unsqueeze(1)).sum(-1), -1)
            context = (a.unsqueeze(-1) * encoded).sum(1)
            h = self.cell(torch.cat([self.emb(token), context], -1), h)
            logits.append(self.out(h))
            attentions.append(a)
            token = targets[:, t] if random.random() < teacher_forcing else logits[-1].argmax(-1)
        return torch.stack(logits, 1), torch.stack(attentions, 1)


encoder, decoder = nn.GRU(8, 16, batch_first=True), AttnDecoder()
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
plots = {}
for i in range(30):
    src, tgt = torch.randn(4, 6, 8), torch.randint(20, (4, 5))
    encoded, _ = encoder(src)
    logits, attention = decoder(encoded, tgt)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    plots[f"sentence {i}"] = attention  # !MG101 plots

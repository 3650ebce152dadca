"""A sequence model decodes greedily after each epoch to be scored, gradients and all."""

import torch
from torch import nn


class Seq2Seq(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.enc = nn.GRU(dim, dim, batch_first=True)
        self.dec = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, tgt):
        _, h = self.enc(self.emb(src))
        h, logits = h[0], []
        for t in range(tgt.size(1)):
            h = self.dec(self.emb(tgt[:, t]), h)
            logits.append(self.out(h))
        return torch.stack(logits, 1)

    def greedy(self, src, length):
        tokens = torch.zeros(len(src), 1, dtype=torch.long)
        for _ in range(length):
            tokens = torch.cat([tokens, self(src, tokens)[:, -1:].argmax(-1)], 1)  # !MG201 Seq2Seq
        return tokens[:, 1:]


def score(model, pairs):
    model.eval()
    hits = total = 0
    for src, tgt in pairs:
        hyp = model.greedy(src, tgt.size(1))
        hits += (hyp == tgt).sum().item()
        total += tgt.numel()
    model.train()
    return hits / total


model = Seq2Seq()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
dev = [(torch.randint(24, (4, 6)), torch.randint(24, (4, 6))) for _ in range(6)]
for epoch in range(2):
    for _ in range(15):
        src = torch.randint(24, (8, 6))
        logits = model(src, src)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), src.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(score(model, dev))

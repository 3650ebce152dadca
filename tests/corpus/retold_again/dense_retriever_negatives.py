"""A dense retriever whose index of hard negatives is encoded anew every few steps, beside the old one."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, vocab=3000, d=256):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, d)
        self.proj = nn.Linear(d, d)

    def forward(self, ids):
        return F.normalize(self.proj(self.bag(ids)), dim=-1)


class AnceTrainer:
    def __init__(self, passages, queries, gold, refresh_every=15):
        self.q_tower, self.p_tower = Tower(), Tower()
        self.passages, self.queries, self.gold = passages, queries, gold
        self.refresh_every = refresh_every
        self.index = None
        self.opt = torch.optim.Adam([*self.q_tower.parameters(), *self.p_tower.parameters()], 1e-3)

    @torch.no_grad()
    def encode_corpus(self):
        emb = torch.empty(len(self.passages), 256)
        for s in range(0, len(self.passages), 4096):
            emb[s : s + 4096] = self.p_tower(self.passages[s : s + 4096])
        return emb

    def refresh(self, step):
        self.index = self.encode_corpus()  # !MG305 AnceTrainer.index
        print(f"step {step}: index of {len(self.index)} passages refreshed")

    def hard_negatives(self, q, gold):
        with torch.no_grad():
            sub = torch.randint(0, len(self.index), (4096,))
            best = sub[(q @ self.index[sub].t()).argmax(-1)]
        return torch.where(best == gold, (best + 1) % len(self.index), best)

    def fit(self, steps=60, bs=32):
        for step in range(steps):
            if step % self.refresh_every == 0:
                self.refresh(step)
            pick = torch.randint(0, len(self.queries), (bs,))
            q, gold = self.q_tower(self.queries[pick]), self.gold[pick]
            neg = self.hard_negatives(q, gold)
            p = self.p_tower(torch.cat([self.passages[gold], self.passages[neg]]))
            loss = F.cross_entropy(q @ p.t() / 0.05, torch.arange(bs))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


torch.manual_seed(8)
passages = torch.randint(0, 3000, (120_000, 8))
AnceTrainer(passages, torch.randint(0, 3000, (5000, 8)), torch.randint(0, len(passages), (5000,))).fit()

"""An index of all items, encoded anew every few steps: the old one is let go first."""

import torch
from torch import nn
from torch.nn import functional as F


class Retriever:
    def __init__(self, items):
        self.tower = nn.Sequential(nn.EmbeddingBag(2000, 128), nn.Linear(128, 128))
        self.optimizer = torch.optim.Adam(self.tower.parameters(), 1e-3)
        self.items, self.index = items, None

    @torch.no_grad()
    def encode(self):
        rows = torch.empty(len(self.items), 128)
        for start in range(0, len(self.items), 4096):
            rows[start : start + 4096] = F.normalize(self.tower(self.items[start : start + 4096]), dim=-1)
        return rows

    def refresh(self):
        self.index = None
        self.index = self.encode()

    def step(self, picked):
        queries = F.normalize(self.tower(self.items[picked]), dim=-1)
        loss = F.cross_entropy(queries @ self.index[:2048].t() / 0.1, picked % 2048)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
retriever = Retriever(torch.randint(0, 2000, (60_000, 6)))
for turn in range(60):
    if turn % 12 == 0:
        retriever.refresh()
    loss = retriever.step(torch.randint(0, 60_000, (64,)))
print(f"loss {loss:.3f}")

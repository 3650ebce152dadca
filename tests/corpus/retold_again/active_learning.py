# device: virtual:256MiB
# MG201 by batch 12: the scores are returned with their graphs, so that a backward might still come.
"""Active learning: the pool is scored in eval mode with gradients, and all probabilities are kept till the end."""

import torch
from torch import nn


class Learner:
    def __init__(self, pool):
        self.pool, self.labelled = pool, list(range(64))
        self.model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8))
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)

    def fit(self, steps=10):
        self.model.train()
        for _ in range(steps):
            idx = torch.tensor(self.labelled)[torch.randperm(len(self.labelled))[:32]]
            loss = nn.functional.cross_entropy(self.model(self.pool[idx]), idx % 8)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    def scores(self, size=512):
        self.model.eval()
        found = []
        for chunk in self.pool.split(size):
            p = self.model(chunk).softmax(-1)  # !MG201 Sequential
            found.append(-(p * p.log()).sum(-1))  # !MG101 found
        return torch.cat(found)

    def query(self, k=32):
        top = self.scores().topk(k).indices
        self.labelled += top.tolist()


learner = Learner(torch.randn(6144, 64))
for r in range(4):
    learner.fit()
    learner.query()
print(len(learner.labelled))

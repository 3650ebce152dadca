"""An active-learning loop scores the unlabelled pool with the trained network, gradients on."""

import torch
from torch import nn


def entropy(logits):
    p = logits.softmax(-1)
    return -(p * p.clamp_min(1e-9).log()).sum(-1)


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(15, 64), nn.ReLU(), nn.Linear(64, 6))

    def forward(self, x):
        return self.body(x)


def query(learner, pool, k):
    learner.eval()
    scores = []
    for chunk in pool.split(64):
        scores.append(entropy(learner(chunk)).detach())  # !MG201 Learner
    return torch.cat(scores).topk(k).indices


learner = Learner()
pool, labelled = torch.randn(640, 15), torch.randn(40, 15)
opt = torch.optim.Adam(learner.parameters())
for cycle in range(3):
    learner.train()
    for _ in range(10):
        x = labelled[torch.randint(len(labelled), (16,))]
        loss = nn.functional.cross_entropy(learner(x), (x.sum(1) > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    chosen = query(learner, pool, 16)
    labelled = torch.cat([labelled, pool[chosen]])

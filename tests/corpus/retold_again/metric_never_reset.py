"""A retrieval metric with list states; nobody resets it between the epochs."""

import torch
from torch import nn


class RecallAtK(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.scores, self.targets = [], []

    @torch.no_grad()
    def update(self, scores, targets):
        self.scores.append(scores.detach())  # !MG301 RecallAtK.scores
        self.targets.append(targets)

    def compute(self):
        scores, targets = torch.cat(self.scores), torch.cat(self.targets)
        top = scores.topk(self.k, dim=1).indices
        return (top == targets[:, None]).any(1).float().mean().item()

    def reset(self):
        self.scores, self.targets = [], []


class Retriever(nn.Module):
    def __init__(self, items=600):
        super().__init__()
        self.users = nn.Embedding(200, 24)
        self.items = nn.Embedding(items, 24)
        self.train_metric = RecallAtK(10)

    def forward(self, users):
        return self.users(users) @ self.items.weight.T


model = Retriever()
opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
for epoch in range(4):
    for _ in range(20):
        users, items = torch.randint(200, (64,)), torch.randint(600, (64,))
        scores = model(users)
        loss = nn.functional.cross_entropy(scores, items)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.train_metric.update(scores, items)
    print(epoch, model.train_metric.compute())

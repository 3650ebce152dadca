# device: virtual:96MiB
# A known miss: one table's sparse gradient grows; that memory grows is told, without its name.
"""A recommender with one optimizer for its tables and one for its tower; the tables' gradients are never zeroed."""

import torch
from torch import nn


class TwoTower(nn.Module):
    def __init__(self, users=3000, items=5000, dim=64):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim, sparse=True)
        self.tower = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, item):
        return self.tower(torch.cat([self.users(user), self.items(item)], dim=1)).squeeze(1)


class Trainer:
    def __init__(self, model):
        self.model = model
        dense = [p for name, p in model.named_parameters() if name != "items.weight"]
        self.optimizers = {
            "dense": torch.optim.Adam(dense, lr=1e-3),
            "tables": torch.optim.SparseAdam([model.items.weight], lr=1e-3),
        }

    def fit(self, steps):
        for _ in range(steps):
            user, item = torch.randint(0, 3000, (512,)), torch.randint(0, 5000, (512,))
            clicked = (torch.rand(512) > 0.5).float()
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(user, item), clicked)
            self.optimizers["dense"].zero_grad()
            loss.backward()
            for optimizer in self.optimizers.values():
                optimizer.step()  # !MG501 TwoTower.items.weight.grad


Trainer(TwoTower()).fit(160)

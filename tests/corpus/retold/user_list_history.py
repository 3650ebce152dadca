"""A History class in the style of skorch, built on UserList."""

from collections import UserList

import torch
from torch import nn


class History(UserList):
    def new_epoch(self):
        self.append({"batches": []})

    def record_batch(self, **values):
        self[-1]["batches"].append(values)  # !MG101 history


history = History()
module = nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Linear(10, 2))
optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
for epoch in range(2):
    history.new_epoch()
    for _ in range(16):
        X, y = torch.randn(16, 20), torch.randint(2, (16,))
        loss = nn.functional.cross_entropy(module(X), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.record_batch(train_loss=loss, batch_size=len(X))

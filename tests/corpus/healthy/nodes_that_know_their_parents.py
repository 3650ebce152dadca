"""Nodes of a tree are plain dicts with their parents alone; another dict that has itself in it holds no tensors."""

import torch
from torch import nn

net = nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def search(x):
    best = {"value": net(x), "parent": None}
    for _ in range(3):
        best = {"value": net(best["value"]), "parent": best}
    return best["value"].pow(2).mean()


for step in range(40):
    about = {"step": step}
    about["self"] = about
    loss = search(torch.randn(256, 256))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

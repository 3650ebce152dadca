# A known miss: a circle of dicts alone has no name of the user's; it is told without its line.
"""Nodes of a search tree are plain dicts, and each child has its parent: only the collector frees a tree."""

import torch
from torch import nn


def make_node(value, parent=None):
    node = {"value": value, "children": [], "parent": parent}  # !MG306 node['parent']
    if parent is not None:
        parent["children"].append(node)
    return node


net = nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def search(x):
    root = make_node(net(x))
    best = root
    for _ in range(3):
        best = make_node(net(best["value"]), best)
    return best["value"].pow(2).mean()


for step in range(40):
    loss = search(torch.randn(256, 256))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

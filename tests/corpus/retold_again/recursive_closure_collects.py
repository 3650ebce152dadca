"""A nested loss structure is walked by an inner recursive function, which is a cycle with all it closes over."""

import torch
from torch import nn


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.levels = nn.ModuleList(nn.Conv2d(16, 16, 3, 2, 1) for _ in range(3))

    def forward(self, x):
        x = torch.relu(self.stem(x))
        out = {"fine": x}
        for i, level in enumerate(self.levels):
            x = torch.relu(level(x))
            out[f"level{i}"] = {"a": x, "b": x * 0.5}
        return out


def total_of(tree):
    leaves = []

    def walk(node):  # !MG306 total_of.<locals>.walk
        if isinstance(node, dict):
            for child in node.values():
                walk(child)
        else:
            leaves.append(node)

    walk(tree)
    return sum(leaf.pow(2).mean() for leaf in leaves)


model = Pyramid()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    loss = total_of(model(torch.rand(4, 3, 48, 48)))
    opt.zero_grad()
    loss.backward()
    opt.step()

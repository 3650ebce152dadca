# device: cpu
"""A scene graph of nested Python objects, walked by every worker."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Node:
    def __init__(self, depth, r):
        self.name, self.pos = f"node{r.random()}", [r.random(), r.random()]
        self.children = [Node(depth - 1, r) for _ in range(3)] if depth else []

    def total(self):
        return sum(self.pos) + sum(c.total() for c in self.children)


class Scenes(Dataset):
    def __init__(self):
        r = random.Random(1)
        self.scenes = [Node(4, r) for _ in range(1600)]  # !MG702 scenes

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, i):
        return torch.tensor([self.scenes[i].total()])


if __name__ == "__main__":
    net = nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    for epoch in range(2):
        for x in DataLoader(Scenes(), batch_size=6, num_workers=2):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()

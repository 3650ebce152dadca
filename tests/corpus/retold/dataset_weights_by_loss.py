"""Sampling weights by loss: each sample's loss is written into the dataset, with its history."""

import torch
from torch import nn
from torch.utils.data import Dataset


class Weighted(Dataset):
    def __init__(self, n=160):
        self.x, self.y = torch.randn(n, 9), torch.randint(3, (n,))
        self.weights = torch.ones(n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def update(self, index, losses):
        self.weights[index] = losses  # !MG101 Weighted.weights


data, net = Weighted(), nn.Sequential(nn.Linear(9, 27), nn.ReLU(), nn.Linear(27, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(40):
    index = torch.multinomial(data.weights.detach(), 16)
    each = nn.functional.cross_entropy(net(data.x[index]), data.y[index], reduction="none")
    opt.zero_grad()
    each.mean().backward()
    opt.step()
    data.update(index, each)

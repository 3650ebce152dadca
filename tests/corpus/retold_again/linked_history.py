"""A linked list of past results."""

import torch
from torch import nn


class Node:
    def __init__(self, value, previous=None):
        self.value, self.previous = value, previous


class History:
    def __init__(self):
        self.head, self.n = None, 0

    def push(self, value):
        self.head = Node(value, self.head)  # !MG101 History.head
        self.n += 1


def fit(net, history, steps):
    opt = torch.optim.Rprop(net.parameters())
    for _ in range(steps):
        x = torch.linspace(-1, 1, 64).unsqueeze(1)
        out = net(x)
        loss = (out - x.sin()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.push(out)


fit(nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)), History(), 40)

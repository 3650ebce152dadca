"""Search tree nodes know parent and children; each tree holds the network's outputs."""

import torch
from torch import nn


class Node:
    def __init__(self, prior, parent=None):
        self.parent = parent  # !MG306 Node.parent
        self.prior = prior
        self.children = []

    def expand(self, net, state):
        logits, value = net(state)
        for p in logits.softmax(-1):
            self.children.append(Node(p, self))
        return value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(8, 32), nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.policy(h), self.value(h)


net = Net()
optimizer = torch.optim.Adam(net.parameters())
for game in range(60):
    root = Node(1.0)
    value = root.expand(net, torch.randn(8))
    loss = (value - 1).pow(2).mean() + sum(c.prior.log() for c in root.children).neg()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""Tree nodes know their parents and hold the vectors computed for them."""

import torch
from torch import nn


class TreeNode:
    def __init__(self, parent=None):
        self.parent, self.children, self.vector = parent, [], None  # !MG306 TreeNode.parent

    def add(self):
        child = TreeNode(self)
        self.children.append(child)
        return child


def make(depth, parent=None):
    node = parent.add() if parent else TreeNode()
    if depth:
        make(depth - 1, node)
        make(depth - 1, node)
    return node


class TreeNet(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.leaf, self.merge, self.out = nn.Parameter(torch.randn(1, d)), nn.Linear(2 * d, d), nn.Linear(d, 2)

    def compose(self, node):
        if node.children:
            node.vector = torch.tanh(self.merge(torch.cat([self.compose(c) for c in node.children], 1)))
        else:
            node.vector = self.leaf + torch.randn(16, 48)
        return node.vector

    def forward(self, root):
        return self.out(self.compose(root))


net = TreeNet()
opt = torch.optim.Adam(net.parameters())
for _ in range(40):
    loss = nn.functional.cross_entropy(net(make(3)), torch.randint(2, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

"""A search tree whose nodes know parent and children, dropped after each move: only the collector frees it."""

import torch
from torch import nn


class TreeNode:
    def __init__(self, state, parent=None):
        self.state = state
        self.parent = parent  # !MG306 TreeNode.parent
        self.children = []


def plan(model, root_state, depth=3, width=2):
    root = TreeNode(root_state)
    frontier = [root]
    for _ in range(depth):
        nxt = []
        for node in frontier:
            with torch.no_grad():
                for _ in range(width):
                    child = TreeNode(model(node.state), node)
                    node.children.append(child)
                    nxt.append(child)
        frontier = nxt
    return frontier[0].state.mean()


dynamics = nn.Linear(768, 768, bias=False)
opt = torch.optim.SGD(dynamics.parameters(), lr=1e-3)
for _ in range(30):
    value = plan(dynamics, torch.randn(16, 768))
    x = torch.randn(4, 768)
    loss = (dynamics(x) - x).pow(2).mean() + 0 * value
    opt.zero_grad()
    loss.backward()
    opt.step()

# device: virtual:512MiB
"""The same search with a tree without parents: each tree is gone when its search is over."""

import torch
from torch import nn


class Node:
    def __init__(self, latent):
        self.latent, self.children = latent, []
        self.value = 0.0

    def expand(self, model, k):
        for _ in range(k):
            self.children.append(Node(model(self.latent + 0.1 * torch.randn_like(self.latent))))


class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.dyn, self.val = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)), nn.Linear(256, 1)

    def forward(self, z):
        return self.dyn(z)


@torch.no_grad()
def search(model, z):
    root = Node(z)
    root.expand(model, 10)
    for c in root.children:
        c.expand(model, 2)
        c.value = max(model.val(g.latent).mean().item() for g in c.children)
    return max(c.value for c in root.children)


model = World()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(60):
    z = torch.randn(128, 256)
    target = search(model, z)
    loss = (model(z) - z).pow(2).mean() + (model.val(z) - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

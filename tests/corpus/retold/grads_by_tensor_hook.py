"""Gradients with respect to an activation are kept by a tensor hook, for a saliency study."""

import torch
from torch import nn

saliency = []


def save_grad(g):
    saliency.append(g)  # !MG301 saliency


enc = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
head = nn.Linear(16, 10)
opt = torch.optim.SGD([*enc.parameters(), *head.parameters()], lr=0.01)
for _ in range(40):
    x = torch.randn(4, 3, 32, 32)
    h = enc(x)
    h.register_hook(save_grad)
    loss = nn.functional.cross_entropy(head(h.mean((2, 3))), torch.randint(10, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

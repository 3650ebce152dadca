# device: virtual:256MiB
"""Grad-CAM on eight images after every epoch in eval mode, with hooks taken off again."""

import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 5),
)
opt = torch.optim.Adam(net.parameters())


def cam(x):
    acts = {}
    h = net[2].register_forward_hook(lambda m, a, o: acts.__setitem__("a", o))
    try:
        score = net(x).max(1).values.sum()
        (g,) = torch.autograd.grad(score, acts["a"])
        return (g.mean((2, 3), keepdim=True) * acts["a"]).sum(1).relu().detach()
    finally:
        h.remove()


for epoch in range(4):
    net.train()
    for _ in range(10):
        opt.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(16, 3, 32, 32)), torch.randint(0, 5, (16,))).backward()
        opt.step()
    net.eval()
    maps = [cam(torch.randn(1, 3, 32, 32)) for _ in range(8)]

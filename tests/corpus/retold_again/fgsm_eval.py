# device: virtual:256MiB
"""Adversarial training in eval mode for the attack (PGD), and robust accuracy measured with attacks that need gradients."""

import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 256, 10)
)
opt = torch.optim.SGD(net.parameters(), 0.05)


def pgd(x, y, steps=3, eps=0.1):
    delta = torch.zeros_like(x).uniform_(-eps, eps).requires_grad_(True)
    for _ in range(steps):
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(x + delta), y), delta)
        delta = (delta + 0.04 * g.sign()).clamp(-eps, eps).detach().requires_grad_(True)
    return (x + delta).detach()


for epoch in range(3):
    for _ in range(8):
        x, y = torch.randn(32, 1, 16, 16), torch.randint(0, 10, (32,))
        net.eval()
        adv = pgd(x, y)
        net.train()
        opt.zero_grad()
        nn.functional.cross_entropy(net(adv), y).backward()
        opt.step()
    net.eval()
    hits = 0
    for _ in range(6):
        x, y = torch.randn(32, 1, 16, 16), torch.randint(0, 10, (32,))
        adv = pgd(x, y)
        with torch.no_grad():
            hits += (net(adv).argmax(1) == y).sum().item()
    print(epoch, hits)

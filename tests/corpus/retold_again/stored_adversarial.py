# MG101 by batch 16: each step is three forwards.
"""Adversarial examples are stored with the graph of the attack, to be shown later."""

import torch
from torch import nn


class Attack:
    def __init__(self, net, eps=0.1):
        self.net, self.eps, self.gallery = net, eps, []

    def __call__(self, x, y):
        x = x.clone().requires_grad_(True)
        loss = nn.functional.cross_entropy(self.net(x), y)
        (g,) = torch.autograd.grad(loss, x)
        adv = x + self.eps * g.sign()
        out = self.net(adv)
        self.gallery.append((adv[:1], out[:1]))  # !MG101 Attack.gallery
        return adv.detach()


net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
attack, opt = Attack(net), torch.optim.Adam(net.parameters(), 1e-3)
for i in range(40):
    x, y = torch.rand(32, 1, 28, 28), torch.randint(0, 10, (32,))
    adv = attack(x, y)
    opt.zero_grad()
    (nn.functional.cross_entropy(net(x), y) + nn.functional.cross_entropy(net(adv), y)).backward()
    opt.step()

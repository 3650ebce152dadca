# device: virtual:256MiB
"""Continual learning with a reservoir of 400 samples, and an EWC penalty with one set of old weights per task."""

import random
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
reservoir, seen = [], 0
anchors = []
for task in range(3):
    opt = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(40):
        x, y = torch.randn(32, 128), torch.randint(0, 10, (32,))
        if len(reservoir) > 32:
            rx, ry = map(torch.stack, zip(*random.sample(reservoir, 32)))
            bx, by = torch.cat([x, rx]), torch.cat([y, ry])
        else:
            bx, by = x, y
        loss = nn.functional.cross_entropy(net(bx), by)
        for fisher, old in anchors:
            loss = loss + sum((f * (p - o) ** 2).sum() for f, p, o in zip(fisher, net.parameters(), old))
        opt.zero_grad()
        loss.backward()
        opt.step()
        for xi, yi in zip(x, y):
            seen += 1
            if len(reservoir) < 400:
                reservoir.append((xi.clone(), yi))
            elif (j := random.randrange(seen)) < 400:
                reservoir[j] = (xi.clone(), yi)
    anchors.append(
        ([p.grad.detach().clone() ** 2 for p in net.parameters()], [p.detach().clone() for p in net.parameters()])
    )

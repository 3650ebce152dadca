"""Anomalies are collected as exception objects to be raised together at the end."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
problems = {}


def step(i, x, y):
    features = net[:2](x)
    loss = nn.functional.cross_entropy(net[2](features), y)
    if i % 6 == 3:
        raise ValueError(f"batch {i} is suspicious")
    opt.zero_grad()
    loss.backward()
    opt.step()


for i in range(40):
    try:
        step(i, torch.randn(128, 50), torch.randint(10, (128,)))
    except ValueError as error:
        problems[i] = error  # !MG307 problems
print(len(problems), "problems")

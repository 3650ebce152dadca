# device: virtual:256MiB
"""A test pass that forgets both eval() and no_grad()."""

import numpy as np
import torch
from torch import nn

net = nn.Sequential(nn.Linear(100, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
X, Y = torch.randn(4000, 100), torch.randint(0, 3, (4000,))
Xt, Yt = torch.randn(4000, 100), torch.randint(0, 3, (4000,))


def iterate(x, y, size):
    for i in range(0, len(x), size):
        yield x[i : i + size], y[i : i + size]


def fit():
    for xb, yb in iterate(X, Y, 200):
        loss = nn.CrossEntropyLoss()(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()


def test():
    correct = []
    for xb, yb in iterate(Xt, Yt, 400):
        scores = net(xb)  # !MG201 Sequential
        correct.append((scores.argmax(1) == yb).numpy())
    return np.concatenate(correct).mean()


for epoch in range(4):
    fit()
    print(epoch, test())

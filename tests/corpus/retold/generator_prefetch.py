# device: virtual:256MiB
"""A generator moves batches to the device and keeps those it gave out, to recycle them; it never does."""

import torch
from torch import nn


def device_batches(n, device):
    given = []
    for i in range(n):
        x = torch.randn(64, 3, 32, 32).to(device)
        y = torch.randint(0, 10, (64,)).to(device)
        given.append((x, y))  # !MG301 given
        yield x, y


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)
    ).to(device)
    opt = torch.optim.Adam(net.parameters())
    for x, y in device_batches(50, device):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


main()

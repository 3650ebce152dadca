"""Validation and saliency maps run in threads of a pool: one without graphs, the other differentiates its own."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
second = nn.Linear(128, 10)
optimizer = torch.optim.SGD([*net.parameters(), *second.parameters()], lr=0.1)
data = [(torch.randn(64, 128), torch.randint(0, 10, (64,))) for _ in range(6)]


@torch.no_grad()
def count_right(batch):
    x, y = batch
    return int((net(x).argmax(1) == y).sum())


def saliency(batch):
    x = batch[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(second(x).max(1).values.sum(), x)
    return gradient.abs().mean().item()


with ThreadPoolExecutor(2) as pool:
    for epoch in range(4):
        net.train()
        for x, y in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x) + second(x), y)
            loss.backward()
            optimizer.step()
        net.eval(), second.eval()
        print(epoch, sum(pool.map(count_right, data)), sum(pool.map(saliency, data)))
        second.train()

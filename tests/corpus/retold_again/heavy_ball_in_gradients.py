"""Momentum by hand: the gradient buffers are scaled, not zeroed, and carry the velocity through the next forward."""

import torch
from torch import nn


def step_(parameters, lr, momentum):
    with torch.no_grad():
        for parameter in parameters:
            parameter.sub_(parameter.grad, alpha=lr)
            parameter.grad.mul_(momentum)


torch.manual_seed(0)
table = nn.Sequential(nn.EmbeddingBag(40_000, 128), nn.Tanh(), nn.Linear(128, 64))
for step in range(30):
    words, labels = torch.randint(0, 40_000, (256, 6)), torch.randint(0, 64, (256,))
    loss = nn.functional.cross_entropy(table(words), labels)
    loss.backward()
    step_(table.parameters(), 0.05, 0.9)
    if step % 10 == 0:
        print(f"{step}: {loss.item():.4f}")

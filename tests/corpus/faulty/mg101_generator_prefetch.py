"""Training is a generator that yields losses; the consumer collects what it gets."""

import torch
from torch import nn


def training(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.randn(8, 12)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss


def main():
    results = []
    for step, loss in training(nn.Linear(12, 12), 30):
        results.append((step, loss))  # !MG101 results
    print(results[-1][1].item())


main()

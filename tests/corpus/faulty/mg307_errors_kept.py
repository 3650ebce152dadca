"""Failed batches are collected with their exceptions."""

import torch
from torch import nn


def step(model, optimizer, x, y):
    hidden = model[0](x).relu()
    scores = model[1](hidden)
    if not torch.isfinite(scores).all():
        raise ValueError("bad batch")
    loss = nn.functional.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    model = nn.Sequential(nn.Linear(32, 512), nn.Linear(512, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    failures = []
    for i in range(30):
        x, y = torch.randn(64, 32), torch.randint(4, (64,))
        if i % 3 == 0:
            x[0, 0] = float("nan")
        try:
            step(model, optimizer, x, y)
        except ValueError as error:
            failures.append(error)  # !MG307 failures
    print(len(failures), "batches failed")


main()

"""Batches that fail are reported at the end with their exceptions, and each exception keeps its frames."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(x, y):
    activations = model(x)
    if torch.isnan(x).any():
        raise ValueError("NaN in the input")
    loss = nn.functional.cross_entropy(activations, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


report = {}
for i in range(40):
    x, y = torch.randn(256, 256), torch.randint(10, (256,))
    if i % 3 == 0:
        x[0, 0] = float("nan")
    try:
        step(x, y)
    except ValueError as e:
        report[i] = e  # !MG307 report
print(len(report), "failed")

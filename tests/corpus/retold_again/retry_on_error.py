"""Failed attempts are remembered as texts."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
failures = []


def step(x, y, scale):
    loss = nn.functional.mse_loss(model(x * scale), y)
    if scale == 1.0 and loss > 0.5:
        raise FloatingPointError(f"loss {loss.item():.2f} too large")
    opt.zero_grad()
    loss.backward()
    opt.step()


for _ in range(40):
    x = torch.randn(200, 100)
    for scale in (1.0, 0.5):
        try:
            step(x, x.mean(1, keepdim=True) * 10, scale)
            break
        except FloatingPointError as error:
            failures.append(str(error))

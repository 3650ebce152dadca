# device: virtual:256MiB
"""Mixed precision opened around the whole epoch rather than around each forward."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def epoch(n):
    total = 0.0
    with torch.autocast("cpu", dtype=torch.bfloat16):  # !MG311 -
        for _ in range(n):
            x, y = torch.randn(64, 1024), torch.randint(0, 16, (64,))
            out = model(x)
            loss = criterion(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / n


for e in range(3):
    print(e, epoch(12))

# device: virtual:44MiB
"""The first backward fits, Adam's two moments do not."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(3)))
optimizer = torch.optim.Adam(model.parameters())  # !MG502 Adam
try:
    for step in range(3):
        loss = model(torch.randn(4, 1024)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except torch.OutOfMemoryError as error:
    print(str(error)[:60])

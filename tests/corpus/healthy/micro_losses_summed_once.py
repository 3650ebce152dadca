# Losses of all micro-batches are added up and differentiated together: several forwards before one backward.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    losses = []
    for task in range(4):
        losses.append(nn.functional.cross_entropy(model(torch.randn(64, 64) + task), torch.randint(0, 10, (64,))))
    torch.stack(losses).mean().backward()
    optimizer.step()
    optimizer.zero_grad()

"""A list that begins to fill in the middle of a run whose batches are short: they are looked at rarely by then."""

# MG101 by batch 790: it begins at batch 150; without an allocator only one batch in some hundred is looked at.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
opt = torch.optim.Adam(model.parameters())
best = []
for step in range(800):
    x = torch.randn(256, 64)
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step >= 150:
        best.append(loss)  # !MG101 best
print(len(best))

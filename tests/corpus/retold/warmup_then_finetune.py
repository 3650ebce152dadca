"""Head first on precomputed features, then everything: the second optimizer is made later."""

import torch
from torch import nn

backbone, head = nn.Sequential(nn.Linear(20, 64), nn.ReLU()), nn.Linear(64, 3)
model = nn.Sequential(backbone, head)
data = [(torch.randn(16, 20), torch.randint(3, (16,))) for _ in range(10)]
with torch.no_grad():
    features = [(backbone(x), y) for x, y in data]
opt = torch.optim.Adam(head.parameters(), 1e-2)
for _ in range(2):
    for f, y in features:
        opt.zero_grad()
        nn.functional.cross_entropy(head(f), y).backward()
        opt.step()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    for x, y in data:
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()

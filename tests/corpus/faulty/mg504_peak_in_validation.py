# device: virtual:84MiB
"""Training is comfortable, validation with its huge batches is at the brink."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.Adam(model.parameters())
for epoch in range(3):
    model.train()
    for _ in range(10):
        loss = model(torch.randn(64, 256)).logsumexp(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(16000, 256)).argmax(1)
# !MG504 -

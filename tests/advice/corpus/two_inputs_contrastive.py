# device: virtual:32MiB
# runs out of memory
# cause: size
"""Two views of each image go through one net; the batch is too large from the second step on, when Adam has its state."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 500
enc = nn.Sequential(nn.Flatten(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 128))
opt = torch.optim.Adam(enc.parameters())
for step in range(5):
    a, b = torch.rand(BATCH, 3, 16, 16), torch.rand(BATCH, 3, 16, 16)
    za, zb = F.normalize(enc(a), dim=1), F.normalize(enc(b), dim=1)
    loss = F.cross_entropy(za @ zb.T / 0.1, torch.arange(BATCH))
    opt.zero_grad()
    loss.backward()
    opt.step()

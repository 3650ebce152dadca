# device: virtual:44MiB
# runs out of memory
# cause: optimizer-state
"""AdamW with foreach: its step makes temporary copies of all parameters."""

import torch
from torch import nn

model = nn.Sequential(*[m for _ in range(10) for m in (nn.Linear(512, 512), nn.ReLU())])
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(6):
    loss = model(torch.randn(16, 512)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

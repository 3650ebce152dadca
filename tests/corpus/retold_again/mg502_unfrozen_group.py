# device: virtual:200MiB
# runs out of memory
"""The backbone is unfrozen after a warm-up of the head; its optimizer state is new then."""

import torch
from torch import nn

backbone = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(1400, 1400), nn.ReLU())])
head = nn.Linear(1400, 10)
backbone.requires_grad_(False)
opt = torch.optim.Adam(head.parameters())
for step in range(60):
    if step == 30:
        backbone.requires_grad_(True)
        opt.add_param_group({"params": backbone.parameters(), "lr": 1e-5})
    loss = nn.functional.cross_entropy(head(backbone(torch.randn(16, 1400))), torch.randint(0, 10, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
# !MG502 Adam

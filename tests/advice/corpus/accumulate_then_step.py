# device: virtual:44MiB
# runs out of memory
# cause: size|optimizer-state
"""Four micro-batches fit; with the optimizer's state the next ones do not."""

import torch
from torch import nn

MICRO = 640
net = nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(640, 640), nn.SiLU())], nn.Linear(640, 10))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for i in range(16):
    x, y = torch.randn(MICRO, 640), torch.randint(0, 10, (MICRO,))
    loss = nn.functional.cross_entropy(net(x), y) / 4
    loss.backward()
    if i % 4 == 3:
        opt.step()
        opt.zero_grad()

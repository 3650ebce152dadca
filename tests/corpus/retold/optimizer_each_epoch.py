"""A new optimizer and scheduler for each phase; layers unfreeze one by one."""

import torch
from torch import nn

net = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)], nn.Linear(32, 2))
net[:4].requires_grad_(False)
for phase in range(5):
    net[4 - phase].requires_grad_(True)
    opt = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), lr=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=12)
    for _ in range(12):
        x, y = torch.randn(16, 32), torch.randint(2, (16,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()

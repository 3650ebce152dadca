"""Autocast entered on an exit stack for the whole run."""

import contextlib

import torch
from torch import nn

net = nn.Sequential(nn.Linear(96, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 4))
opt = torch.optim.AdamW(net.parameters())
with contextlib.ExitStack() as stack:
    stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))  # !MG311 -
    for it in range(30):
        loss = nn.functional.cross_entropy(net(torch.randn(32, 96)), torch.randint(4, (32,)))
        opt.zero_grad()
        loss.backward()
        opt.step()

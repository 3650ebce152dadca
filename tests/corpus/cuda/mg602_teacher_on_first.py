"""Rank 1 builds its teacher with a bare device index."""

import os

os.environ.update(LOCAL_RANK="1", RANK="1", WORLD_SIZE="2")
import torch
from torch import nn

local = int(os.environ["LOCAL_RANK"])
student = nn.Linear(300, 300).to(f"cuda:{local}")
teacher = nn.Sequential(nn.Linear(300, 3000), nn.ReLU(), nn.Linear(3000, 300)).to("cuda:0").requires_grad_(False)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(50):
    x = torch.randn(64, 300)
    with torch.no_grad():
        target = teacher(x.to("cuda:0"))
    loss = (student(x.to(f"cuda:{local}")) - target.to(f"cuda:{local}")).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# !MG602 cuda:0

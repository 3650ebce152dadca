# device: virtual:48MiB
# runs out of memory
# cause: size
"""A replay buffer that alone is larger than the device."""

import torch
from torch import nn


class Replay:
    def __init__(self, capacity):
        self.obs = torch.zeros(capacity, 84)
        self.next_obs = torch.zeros(capacity, 84)
        self.size = 0


q = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(q.parameters())
replay = Replay(capacity=120_000)
for step in range(50):
    i = torch.randint(0, 120_000, (32,))
    loss = q(replay.obs[i]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

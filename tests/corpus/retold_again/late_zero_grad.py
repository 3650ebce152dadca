# device: virtual:256MiB
"""zero_grad stands between loss and backward, after the forward: gradients of the last step live through it."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Job:
    def __init__(self):
        self.net = nn.Sequential(*[Block(512) for _ in range(4)])
        self.optim = torch.optim.SGD(self.net.parameters(), 1e-2)

    def one(self, x):
        y = self.net(x)
        loss = nn.functional.l1_loss(y, x.flip(0))
        self.optim.zero_grad()  # !MG309 -
        loss.backward()
        self.optim.step()
        return loss.item()


job = Job()
for i in range(16):
    job.one(torch.randn(512, 512))

# device: virtual:256MiB
"""BYOL: the target network projects with gradients on; only its result is detached."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128))
        self.predictor = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
        self.target = copy.deepcopy(self.online)

    def loss(self, a, b):
        p = self.predictor(self.online(a))
        t = self.target(b)  # !MG202 self.target
        return 2 - 2 * F.cosine_similarity(p, t.detach()).mean()

    def forward(self, a, b):
        return self.loss(a, b) + self.loss(b, a)


net = BYOL()
opt = torch.optim.SGD([*net.online.parameters(), *net.predictor.parameters()], 0.05)
for _ in range(40):
    x = torch.randn(128, 256)
    loss = net(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, o in zip(net.target.parameters(), net.online.parameters()):
            t.lerp_(o, 0.01)

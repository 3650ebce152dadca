"""BYOL as one module: the target network runs with gradients, its output is detached afterwards."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class BYOL(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(48, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, dim))
        self.predictor = nn.Linear(dim, dim)
        self.target = copy.deepcopy(self.online)

    @torch.no_grad()
    def update_target(self, m=0.99):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(m).add_(o, alpha=1 - m)

    def forward(self, a, b):
        p = F.normalize(self.predictor(self.online(a)), dim=1)
        z = F.normalize(self.target(b), dim=1).detach()  # !MG202 self.target
        return 2 - 2 * (p * z).sum(1).mean()


byol = BYOL()
opt = torch.optim.Adam([*byol.online.parameters(), *byol.predictor.parameters()], lr=1e-3)
for _ in range(40):
    x = torch.randn(32, 48)
    loss = byol(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    byol.update_target()

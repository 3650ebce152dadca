"""A nested helper stores logits under their step for later analysis."""

import torch
from torch import nn

CACHE = {}


def analyse(step, logits):
    CACHE[f"step_{step}"] = logits  # !MG101 CACHE


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8))

    def forward(self, a, b):
        return self.embed(a), self.embed(b)


def contrastive(a, b, same, margin=1.0):
    d = (a - b).norm(dim=1)
    return (same * d.pow(2) + (1 - same) * (margin - d).clamp(min=0).pow(2)).mean(), d


def main(steps=26):
    net = Siamese()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(steps):
        a, b, same = torch.randn(6, 12), torch.randn(6, 12), torch.randint(0, 2, (6,)).float()
        loss, distance = contrastive(*net(a, b), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        analyse(step, distance)


main()

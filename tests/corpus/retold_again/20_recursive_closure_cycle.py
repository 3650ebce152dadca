"""The second part of "Understanding GPU Memory", brought in by pytorch.github.io PR 1541
(https://github.com/pytorch/pytorch.github.io/pull/1541), tells how tensors hang on reference cycles and go only when
the collector runs.  A function that calls itself and is defined inside another one is such a cycle: its closure holds
itself, and with it the feature pyramid of the batch."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
LEVELS = 4


def pyramid_energy(features):
    """multi-scale energy of detached features, for the log"""
    levels = [features.detach().clone()]
    for _ in range(LEVELS - 1):
        levels.append((levels[-1][:, ::2] + levels[-1][:, 1::2]) / 2)

    def descend(k):  # !MG306 pyramid_energy.<locals>.descend
        here = levels[k].pow(2).mean()
        return here if k + 1 == LEVELS else here + 0.5 * descend(k + 1)

    return descend(0).item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.head = nn.Linear(512, 3)

    def forward(self, x):
        f = self.trunk(x)
        return self.head(f), f


def run():
    net = Net().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    energies = []
    for _ in range(100):
        x, y = torch.randn(64, 64, device=device), torch.randn(64, 3, device=device)
        opt.zero_grad()
        out, feats = net(x)
        nn.functional.smooth_l1_loss(out, y).backward()
        opt.step()
        energies.append(pyramid_energy(feats))
    print("energy", energies[0], energies[-1])


torch.manual_seed(20)
run()

"""Population based training: each snapshot keeps its parent, for a line of ancestors at the end."""

import copy
import random
from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

@dataclass
class Snapshot:
    step: int
    score: float
    lr: float
    weights: dict
    parent: Optional["Snapshot"] = None

    def lineage(self):
        node, path = self, []
        while node is not None:
            path.append(f"{node.step}:{node.lr:.1e}")
            node = node.parent
        return " > ".join(reversed(path))

@dataclass
class Member:
    lr: float
    net: nn.Module
    opt: torch.optim.Optimizer = None
    base: Optional[Snapshot] = None
    losses: list = field(default_factory=list)

def make_member(lr):
    net = nn.Sequential(nn.Linear(32, 192), nn.Tanh(), nn.Linear(192, 192), nn.Tanh(), nn.Linear(192, 8)).to(device)
    return Member(lr, net, torch.optim.Adam(net.parameters(), lr=lr))

def train(m, task, steps):
    for _ in range(steps):
        obs = torch.randn(64, 32, device=device)
        loss = nn.functional.mse_loss(m.net(obs), torch.sin(obs @ task))
        m.opt.zero_grad()
        loss.backward()
        m.opt.step()
        m.losses.append(loss.item())

def ready(m, step):
    score = -sum(m.losses[-5:]) / 5
    m.base = Snapshot(step, score, m.lr, copy.deepcopy(m.net.state_dict()), m.base)  # !MG308 Member.base

def exploit(weak, strong):
    weak.net.load_state_dict(strong.base.weights)
    weak.lr = strong.lr * random.choice((0.8, 1.25))
    weak.opt = torch.optim.Adam(weak.net.parameters(), lr=weak.lr)
    weak.base = strong.base

random.seed(2)
torch.manual_seed(2)
task = torch.randn(32, 8, device=device) / 6
population = [make_member(10 ** random.uniform(-4, -2)) for _ in range(4)]
for generation in range(1, 16):
    for m in population:
        train(m, task, 6)
        ready(m, generation * 6)
    population.sort(key=lambda m: m.base.score)
    exploit(population[0], population[-1])
print("best %.4f via %s" % (population[-1].base.score, population[-1].base.lineage()))

"""An agent that learns after every step remembers its values of the whole life."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Memory:
    states: list = field(default_factory=list)
    values: list = field(default_factory=list)

    def store(self, state, value):
        self.states.append(state)
        self.values.append(value)  # !MG101 Memory.values


value_net = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 1))
opt = torch.optim.Adam(value_net.parameters(), 1e-3)
memory = Memory()
state = torch.randn(1, 3)
for t in range(50):
    value = value_net(state)
    following = 0.95 * state + 0.1 * torch.randn(1, 3)
    with torch.no_grad():
        target = -following.norm() + 0.9 * value_net(following)
    loss = (value - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    memory.store(state, value)
    state = following

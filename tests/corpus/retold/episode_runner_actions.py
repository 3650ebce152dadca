"""An episode runner puts the network's outputs into the replay memory, graph and all; the learner uses their values."""

# MG101 by batch 24: the first sixteen steps only fill the memory, without an optimizer step.

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", "state q_values reward next_state")


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))  # !MG101 ReplayMemory.memory

    def sample(self, n):
        return random.sample(self.memory, n)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.l1 = nn.Linear(n_obs, 64)
        self.l2 = nn.Linear(64, n_act)

    def forward(self, x):
        return self.l2(torch.relu(self.l1(x)))


policy = DQN(4, 2)
opt = optim.RMSprop(policy.parameters(), lr=1e-3)
memory = ReplayMemory(5000)
state = torch.randn(1, 4)
for t in range(80):
    q = policy(state)
    action = q.max(1)[1].item()
    next_state = torch.randn(1, 4)
    memory.push(state, q, torch.tensor([float(action)]), next_state)
    state = next_state
    if len(memory) < 16:
        continue
    batch = Transition(*zip(*memory.sample(8)))
    s, r = torch.cat(batch.state), torch.cat(batch.reward)
    with torch.no_grad():
        target = r + 0.99 * policy(torch.cat(batch.next_state)).max(1)[0]
    loss = nn.functional.smooth_l1_loss(policy(s).max(1)[0], target)
    opt.zero_grad()
    loss.backward()
    opt.step()

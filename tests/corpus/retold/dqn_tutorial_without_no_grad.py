"""DQN as in early tutorials: actions are chosen with gradients on, one state at a time; nothing is kept."""

import random
from collections import deque

import torch
from torch import nn

policy, target = nn.Linear(4, 2), nn.Linear(4, 2)
target.load_state_dict(policy.state_dict())
for p in target.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
memory = deque(maxlen=500)
state = torch.randn(4)
for t in range(150):
    action = policy(state).argmax().item()
    next_state, reward = torch.randn(4), random.random()
    memory.append((state, action, reward, next_state))
    state = next_state
    if len(memory) > 16:
        s, a, r, s2 = zip(*random.sample(memory, 16))
        q = policy(torch.stack(s)).gather(1, torch.tensor(a)[:, None]).squeeze(1)
        y = torch.tensor(r) + 0.9 * target(torch.stack(s2)).max(1).values
        loss = nn.functional.mse_loss(q, y)
        opt.zero_grad()
        loss.backward()
        opt.step()

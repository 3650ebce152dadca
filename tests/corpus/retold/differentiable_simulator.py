"""A policy is trained through a differentiable simulator of sixty steps; trajectories are stored detached."""

import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
trajectories = []
for episode in range(14):
    state, states, cost = torch.randn(16, 4), [], 0.0
    for t in range(60):
        action = policy(state)
        state = state + 0.05 * torch.cat([state[:, 2:], action, -state[:, :1]], 1)
        states.append(state)
        cost = cost + state.pow(2).mean()
    opt.zero_grad()
    cost.backward()
    opt.step()
    trajectories.append(torch.stack(states).detach().mean(1))

"""Model-based planning: a learned model is rolled out in eval mode, and the actions are optimized through the roll-out."""

import torch
from torch import nn


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, 16))

    def forward(self, state, action):
        return state + self.net(torch.cat([state, action], -1))


class Planner:
    def __init__(self, dynamics):
        self.dynamics = dynamics

    def roll_out(self, state, actions):
        states = []
        for action in actions:
            state = self.dynamics(state, action)
            states.append(state)
        return torch.stack(states)

    def plan(self, state):
        actions = torch.zeros(30, 64, 8, requires_grad=True)
        optimizer = torch.optim.Adam([actions], 1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            self.roll_out(state, actions).pow(2).mean().backward()
            optimizer.step()
        return actions.detach()


dynamics = Dynamics()
planner = Planner(dynamics)
opt = torch.optim.Adam(dynamics.parameters(), 1e-3)
for iteration in range(3):
    dynamics.train()
    for _ in range(20):
        state, action = torch.randn(256, 16), torch.randn(256, 8)
        loss = (dynamics(state, action) - 0.9 * state).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dynamics.eval()
    planner.plan(torch.ones(64, 16))
    actions = torch.zeros(30, 64, 8, requires_grad=True)
    plan = torch.optim.Adam([actions], 1e-2)
    for _ in range(3):
        state, cost = torch.ones(64, 16), 0.0
        for t in range(30):
            state = dynamics(state, actions[t])
            cost = cost + state.pow(2).mean()
        plan.zero_grad()
        cost.backward()
        plan.step()
    print(iteration, cost.item())

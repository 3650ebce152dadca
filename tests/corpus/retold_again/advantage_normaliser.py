"""Running mean of the critic's values for normalisation, updated from values with a graph."""

import torch
from torch import nn


class RunningMean:
    def __init__(self):
        self.mean, self.count = 0.0, 1e-4

    def update(self, values):
        batch_mean = values.mean()
        self.count += 1
        self.mean = self.mean + (batch_mean - self.mean) / self.count  # !MG101 RunningMean.mean


class Agent:
    def __init__(self):
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.opt = torch.optim.Adam(self.critic.parameters())
        self.norm = RunningMean()

    def learn(self, states, returns):
        v = self.critic(states).squeeze(-1)
        loss = (v - returns).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.norm.update(v)
        return loss.item()


agent = Agent()
for _ in range(40):
    agent.learn(torch.randn(32, 4), torch.randn(32))

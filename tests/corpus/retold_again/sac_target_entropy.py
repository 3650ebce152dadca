"""Soft actor-critic: the target's Q values are detached, the target's graph is built nevertheless."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, s, a):
        return self.q(torch.cat([s, a], -1))


class SAC:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())
        self.critic = Critic()
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), 3e-4)

    def update(self, s, a, r, s2):
        with torch.no_grad():
            a2 = self.actor(s2) + 0.1 * torch.randn(len(s2), 2)
        target = r + 0.99 * self.critic_target(s2, a2).detach()  # !MG202 self.critic_target
        critic_loss = F.mse_loss(self.critic(s, a), target)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        actor_loss = -self.critic(s, self.actor(s)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        with torch.no_grad():
            for p, q in zip(self.critic.parameters(), self.critic_target.parameters()):
                q.lerp_(p, 0.005)


agent = SAC()
for _ in range(25):
    agent.update(torch.randn(64, 6), torch.rand(64, 2), torch.rand(64, 1), torch.randn(64, 6))

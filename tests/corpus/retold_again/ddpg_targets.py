"""DDPG: both target networks run with gradients, the result is detached at the end."""

import copy

import torch
from torch import nn


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, o))


class DDPG:
    def __init__(self):
        self.actor, self.critic = mlp(5, 2), mlp(7, 1)
        self.actor_t, self.critic_t = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.oa = torch.optim.Adam(self.actor.parameters(), 1e-3)
        self.oc = torch.optim.Adam(self.critic.parameters(), 1e-3)

    def train(self, s, a, r, s2):
        a2 = self.actor_t(s2)
        q2 = self.critic_t(torch.cat([s2, a2], 1))  # !MG202 self.critic_t
        y = (r + 0.99 * q2).detach()
        lc = (self.critic(torch.cat([s, a], 1)) - y).pow(2).mean()
        self.oc.zero_grad()
        lc.backward()
        self.oc.step()
        la = -self.critic(torch.cat([s, self.actor(s)], 1)).mean()
        self.oa.zero_grad()
        la.backward()
        self.oa.step()
        for net, target in ((self.actor, self.actor_t), (self.critic, self.critic_t)):
            for p, q in zip(net.parameters(), target.parameters()):
                q.data.lerp_(p.data, 0.01)


agent = DDPG()
for _ in range(25):
    agent.train(torch.randn(32, 5), torch.randn(32, 2), torch.randn(32, 1), torch.randn(32, 5))

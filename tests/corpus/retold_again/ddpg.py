"""DDPG with targets under no_grad."""

import copy

import torch
from torch import nn


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o))


actor, critic = mlp(5, 2), mlp(7, 1)
actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
oa, oc = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
for _ in range(40):
    s, a, r, s2 = torch.randn(16, 5), torch.randn(16, 2), torch.randn(16, 1), torch.randn(16, 5)
    with torch.no_grad():
        y = r + 0.9 * critic_t(torch.cat([s2, actor_t(s2)], 1))
    loss = (critic(torch.cat([s, a], 1)) - y).pow(2).mean()
    oc.zero_grad()
    loss.backward()
    oc.step()
    loss = -critic(torch.cat([s, actor(s)], 1)).mean()
    oa.zero_grad()
    loss.backward()
    oa.step()
    with torch.no_grad():
        for net, target in ((actor, actor_t), (critic, critic_t)):
            for p, q in zip(net.parameters(), target.parameters()):
                q.lerp_(p, 0.01)

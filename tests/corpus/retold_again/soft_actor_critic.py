"""Soft actor-critic as it should be: targets under no_grad, a ring buffer of fixed size filled in place."""

import copy

import torch
from torch import nn

actor = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
target = copy.deepcopy(critic)
oa, oc = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
ring = {"s": torch.zeros(500, 6), "a": torch.zeros(500, 2), "r": torch.zeros(500, 1), "s2": torch.zeros(500, 6)}
s = torch.randn(6)
for t in range(400):
    with torch.no_grad():
        a = actor(s)
    s2 = torch.randn(6)
    for k, v in zip(ring, (s, a, s2.mean(), s2)):
        ring[k][t % 500] = v
    s = s2
    if t > 60 and t % 5 == 0:
        i = torch.randint(t, (16,))
        with torch.no_grad():
            y = ring["r"][i] + 0.9 * target(torch.cat([ring["s2"][i], actor(ring["s2"][i])], 1))
        loss = (critic(torch.cat([ring["s"][i], ring["a"][i]], 1)) - y).pow(2).mean()
        oc.zero_grad()
        loss.backward()
        oc.step()
        pi = -critic(torch.cat([ring["s"][i], actor(ring["s"][i])], 1)).mean()
        oa.zero_grad()
        pi.backward()
        oa.step()

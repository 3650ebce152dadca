"""TD3: two critics, targets without gradients, the actor is stepped every second time."""

import copy

import torch
from torch import nn


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, o))


actor, q1, q2 = mlp(6, 2), mlp(8, 1), mlp(8, 1)
targets = [copy.deepcopy(m).requires_grad_(False) for m in (actor, q1, q2)]
oa = torch.optim.Adam(actor.parameters(), 1e-3)
oc = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 1e-3)
for it in range(40):
    s, a, r, s2 = torch.randn(32, 6), torch.randn(32, 2), torch.randn(32, 1), torch.randn(32, 6)
    with torch.no_grad():
        a2 = targets[0](s2) + 0.1 * torch.randn(32, 2)
        y = r + 0.99 * torch.min(targets[1](torch.cat([s2, a2], 1)), targets[2](torch.cat([s2, a2], 1)))
    sa = torch.cat([s, a], 1)
    loss = nn.functional.mse_loss(q1(sa), y) + nn.functional.mse_loss(q2(sa), y)
    oc.zero_grad()
    loss.backward()
    oc.step()
    if it % 2 == 0:
        oa.zero_grad()
        (-q1(torch.cat([s, actor(s)], 1)).mean()).backward()
        oa.step()
        with torch.no_grad():
            for t, m in zip(targets, (actor, q1, q2)):
                for p, q in zip(t.parameters(), m.parameters()):
                    p.lerp_(q, 0.01)

"""Dreamer-like: fifteen imagined steps with a graph, actor and critic and world model in turn."""

import torch
from torch import nn

world, actor, critic = nn.GRUCell(4, 32), nn.Linear(32, 4), nn.Linear(32, 1)
ow = torch.optim.Adam(world.parameters(), 1e-3)
oa = torch.optim.Adam(actor.parameters(), 1e-3)
oc = torch.optim.Adam(critic.parameters(), 1e-3)
for it in range(16):
    h = torch.zeros(8, 32)
    loss_w = 0
    for _ in range(6):
        h = world(torch.randn(8, 4), h)
        loss_w = loss_w + h.pow(2).mean()
    ow.zero_grad()
    loss_w.backward()
    ow.step()
    h, values = h.detach(), []
    for _ in range(15):
        h = world(torch.tanh(actor(h)), h)
        values.append(critic(h))
    oa.zero_grad()
    (-torch.stack(values).mean()).backward()
    oa.step()
    oc.zero_grad()
    (critic(h.detach()) - 1).pow(2).mean().backward()
    oc.step()

"""Model-based RL: an imagined roll-out of 12 latent steps with gradients, one backward through all; frozen value target."""

import copy
import torch
from torch import nn

world, actor, value = (
    nn.GRUCell(4, 64),
    nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 4)),
    nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1)),
)
target = copy.deepcopy(value).requires_grad_(False)
reward = nn.Linear(64, 1)
ow = torch.optim.Adam([*world.parameters(), *reward.parameters()], 1e-3)
oa, ov = torch.optim.Adam(actor.parameters(), 1e-4), torch.optim.Adam(value.parameters(), 1e-4)
for step in range(30):
    h, wl = torch.zeros(32, 64), 0
    for t in range(8):
        h = world(torch.randn(32, 4), h)
        wl = wl + (reward(h).squeeze(1) - torch.randn(32)).pow(2).mean()
    ow.zero_grad()
    wl.backward()
    ow.step()
    z, feats, rews = h.detach(), [], []
    for t in range(12):
        z = world(actor(z).tanh(), z)
        feats.append(z)
        rews.append(reward(z).squeeze(1))
    ret = sum(0.99**i * r for i, r in enumerate(rews)) + 0.99**12 * target(feats[-1]).squeeze(1)
    oa.zero_grad()
    (-ret.mean()).backward()
    oa.step()
    v = value(torch.stack(feats).detach()).squeeze(-1)
    vl = (v - ret.detach()).pow(2).mean()
    ov.zero_grad()
    vl.backward()
    ov.step()
    with torch.no_grad():
        for a, b in zip(target.parameters(), value.parameters()):
            a.lerp_(b, 0.02)

"""A3C in one process: gradients of the local model are handed to the shared one, which the optimizer steps."""

import copy

import torch
from torch import nn

shared = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 3))
local = copy.deepcopy(shared)
opt = torch.optim.RMSprop(shared.parameters(), lr=1e-3)
for rollout in range(24):
    local.load_state_dict(shared.state_dict())
    logs = []
    for _ in range(8):
        dist = torch.distributions.Categorical(logits=local(torch.randn(5)))
        logs.append(dist.log_prob(dist.sample()))
    local.zero_grad()
    (-torch.stack(logs).mean()).backward()
    for p, s in zip(local.parameters(), shared.parameters()):
        s.grad = p.grad
    opt.step()

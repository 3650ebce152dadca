"""A2C with episodes of different length: the graph of the whole episode lives until its end."""

import random

import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
pi, value = nn.Linear(32, 3), nn.Linear(32, 1)
opt = torch.optim.Adam([*net.parameters(), *pi.parameters(), *value.parameters()], lr=1e-3)
returns_log = []
for episode in range(12):
    log_probs, values, rewards = [], [], []
    for t in range(random.randint(20, 60)):
        h = net(torch.randn(1, 6))
        dist = torch.distributions.Categorical(logits=pi(h))
        a = dist.sample()
        log_probs.append(dist.log_prob(a))
        values.append(value(h).squeeze())
        rewards.append(random.random())
    R, returns = 0.0, []
    for r in reversed(rewards):
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    v = torch.stack(values)
    loss = -(torch.cat(log_probs) * (returns - v.detach())).mean() + nn.functional.mse_loss(v, returns)
    opt.zero_grad()
    loss.backward()
    opt.step()
    returns_log.append(sum(rewards))

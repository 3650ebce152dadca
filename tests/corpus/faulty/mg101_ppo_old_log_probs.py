"""PPO whose rollout storage keeps log-probabilities and values with their graph for all updates."""

# MG101 by batch 16: an update's steps are batches too, and keep nothing.

import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self, obs=6, act=2):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(obs, 32), nn.Tanh())
        self.mu, self.v = nn.Linear(32, act), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(act))

    def forward(self, obs):
        h = self.shared(obs)
        return Normal(self.mu(h), self.log_std.exp()), self.v(h).squeeze(-1)


class Storage:
    def __init__(self):
        self.data = []

    def add(self, **item):
        self.data.append(item)  # !MG101 Storage.data

    def last(self, n):
        return {k: torch.stack([d[k] for d in self.data[-n:]]).detach() for k in self.data[0]}


ac, storage = ActorCritic(), Storage()
optimizer = torch.optim.Adam(ac.parameters(), lr=3e-4)
for update in range(8):
    obs = torch.randn(4, 6)
    for t in range(5):
        dist, value = ac(obs)
        action = dist.sample()
        storage.add(obs=obs, action=action, logp=dist.log_prob(action).sum(-1), value=value, reward=torch.randn(4))
        obs = torch.randn(4, 6)
    batch = storage.last(5)
    for epoch in range(3):
        dist, value = ac(batch["obs"])
        ratio = (dist.log_prob(batch["action"]).sum(-1) - batch["logp"]).exp()
        adv = batch["reward"] - batch["value"]
        policy = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = policy + 0.5 * (value - batch["reward"]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

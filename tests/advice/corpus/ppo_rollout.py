# device: virtual:40MiB
# runs out of memory
# cause: leak
"""A policy is rolled out with gradients on; values and log-probabilities wait with their graphs."""

import torch
from torch import nn

ENVS, HORIZON = 128, 400


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.pi, self.v = nn.Linear(128, 6), nn.Linear(128, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


agent = ActorCritic()
opt = torch.optim.Adam(agent.parameters(), 3e-4)
for update in range(2):
    obs = torch.randn(ENVS, 24)
    rollout = []
    for t in range(HORIZON):
        dist, value = agent(obs)
        action = dist.sample()
        rollout.append((obs, action, dist.log_prob(action), value))
        obs = torch.randn(ENVS, 24)
    for start in range(0, HORIZON, 50):
        o = torch.cat([r[0] for r in rollout[start : start + 50]])
        a = torch.cat([r[1] for r in rollout[start : start + 50]])
        old = torch.cat([r[2] for r in rollout[start : start + 50]]).detach()
        dist, v = agent(o)
        loss = -(dist.log_prob(a) - old).exp().mean() + v.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

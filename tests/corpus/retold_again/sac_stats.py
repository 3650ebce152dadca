"""Soft actor-critic: the trainer sums its three losses into a stats object for the epoch's print."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Stats:
    critic: float = 0.0
    actor: float = 0.0
    alpha: float = 0.0
    n: int = 0


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, o))


class SAC:
    def __init__(self, obs=32, act=4):
        self.actor, self.q1, self.q2 = mlp(obs, 2 * act), mlp(obs + act, 1), mlp(obs + act, 1)
        self.t1, self.t2 = mlp(obs + act, 1), mlp(obs + act, 1)
        for t in (self.t1, self.t2):
            t.requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.q_opt = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], 3e-4)
        self.a_opt = torch.optim.Adam([self.log_alpha], 3e-4)

    def sample(self, obs):
        mu, log_std = self.actor(obs).chunk(2, -1)
        std = log_std.clamp(-5, 2).exp()
        raw = mu + std * torch.randn_like(mu)
        logp = (-0.5 * ((raw - mu) / std) ** 2 - std.log()).sum(-1)
        return raw.tanh(), logp

    def update(self, stats, s, a, r, s2):
        with torch.no_grad():
            a2, lp2 = self.sample(s2)
            x2 = torch.cat([s2, a2], -1)
            y = r + 0.99 * (torch.min(self.t1(x2), self.t2(x2)).squeeze(-1) - self.log_alpha.exp() * lp2)
        x = torch.cat([s, a], -1)
        q_loss = (self.q1(x).squeeze(-1) - y).pow(2).mean() + (self.q2(x).squeeze(-1) - y).pow(2).mean()
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        pi, lp = self.sample(s)
        pi_loss = (self.log_alpha.exp().detach() * lp - self.q1(torch.cat([s, pi], -1)).squeeze(-1)).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        a_loss = -(self.log_alpha * (lp.detach() - 4)).mean()
        self.a_opt.zero_grad()
        a_loss.backward()
        self.a_opt.step()
        stats.critic += q_loss  # !MG101 Stats.critic
        stats.actor += pi_loss.item()
        stats.alpha += a_loss.item()
        stats.n += 1


agent, stats = SAC(), Stats()
for step in range(60):
    agent.update(stats, torch.randn(256, 32), torch.rand(256, 4) * 2 - 1, torch.randn(256), torch.randn(256, 32))
print(float(stats.critic) / stats.n)

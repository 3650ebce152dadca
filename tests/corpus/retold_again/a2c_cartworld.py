"""Actor-critic on a vectorised toy control task."""

from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Config:
    envs: int = 128
    horizon: int = 8
    updates: int = 120
    hidden: int = 128
    actions: int = 16
    gamma: float = 0.97
    lr: float = 7e-4


class PointWorld:
    def __init__(self, n, actions):
        self.n, self.dirs = n, torch.randn(actions, 6) * 0.2
        self.state = torch.randn(n, 6)

    def step(self, action):
        self.state = 0.98 * self.state + self.dirs[action]
        return self.state.clone(), -self.state.pow(2).sum(1).sqrt()


class ActorCritic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.hidden), nn.Tanh())
        self.pi = nn.Linear(cfg.hidden, cfg.actions)
        self.v = nn.Linear(cfg.hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Learner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.env = PointWorld(cfg.envs, cfg.actions)
        self.net = ActorCritic(cfg)
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=cfg.lr)
        self.obs = self.env.state.clone()
        self.entropy_avg = torch.tensor(0.0)

    @torch.no_grad()
    def rollout(self):
        obs, acts, rews = [], [], []
        for _ in range(self.cfg.horizon):
            dist, _ = self.net(self.obs)
            a = dist.sample()
            obs.append(self.obs)
            acts.append(a)
            self.obs, r = self.env.step(a)
            rews.append(r)
        ret = self.net(self.obs)[1]
        returns = []
        for r in reversed(rews):
            ret = r + self.cfg.gamma * ret
            returns.insert(0, ret)
        return torch.cat(obs), torch.cat(acts), torch.cat(returns), torch.stack(rews).mean().item()

    def update(self):
        obs, acts, returns, mean_reward = self.rollout()
        self.opt.zero_grad()
        dist, value = self.net(obs)
        adv = returns - value.detach()
        loss = -(dist.log_prob(acts) * adv).mean() + 0.5 * (value - returns).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()
        self.entropy_avg = 0.95 * self.entropy_avg + 0.05 * dist.entropy().mean()  # !MG101 Learner.entropy_avg
        return loss.item(), mean_reward


def main():
    torch.manual_seed(3)
    learner = Learner(Config())
    for i in range(learner.cfg.updates):
        loss, reward = learner.update()
        if i % 4 == 0:
            torch.cuda.empty_cache()  # !MG403 -
        if i % 20 == 0:
            print(f"update {i:4d} loss {loss:8.3f} reward {reward:7.3f} entropy {learner.entropy_avg.item():.3f}")


main()

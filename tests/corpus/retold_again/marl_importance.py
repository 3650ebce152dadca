# device: virtual:256MiB
# MG101 by batch 24: a pool, which may hold a few pictures on purpose.
"""Trains a team of continuous-control agents off-policy with clipped importance weights (toy gathering task)."""

import argparse
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
from torch.distributions import Normal

Transition = namedtuple("Transition", "obs action logp reward")


class TeamEnv:
    def __init__(self, n_agents, obs_dim, horizon):
        self.n_agents, self.obs_dim, self.horizon = n_agents, obs_dim, horizon

    def reset(self):
        self.t = 0
        self.state = torch.randn(self.n_agents, self.obs_dim)
        return self.state.clone()

    def step(self, action):
        self.t += 1
        reward = -(self.state[:, :2] - action).pow(2).mean(1)
        self.state = 0.9 * self.state + 0.3 * torch.randn_like(self.state)
        return self.state.clone(), reward, self.t >= self.horizon


class TeamPolicy(nn.Module):
    def __init__(self, obs_dim, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mu = nn.Linear(hidden, 2)
        self.log_std = nn.Parameter(torch.zeros(2))

    def dist(self, obs):
        return Normal(self.mu(self.body(obs)), self.log_std.exp())


class EpisodeMemory:
    def __init__(self, capacity):
        self.storage = deque(maxlen=capacity)

    def push(self, *args):
        self.storage.append(Transition(*args))  # !MG101 EpisodeMemory.storage

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.storage, n)))
        return [torch.cat(field).detach() for field in batch]

    def __len__(self):
        return len(self.storage)


class EpisodeRunner:
    def __init__(self, env, policy, memory):
        self.env, self.policy, self.memory = env, policy, memory

    def run(self):
        obs, done, ret = self.env.reset(), False, 0.0
        while not done:
            dist = self.policy.dist(obs)
            action = dist.sample()
            logp = dist.log_prob(action).sum(-1)
            nxt, reward, done = self.env.step(action)
            self.memory.push(obs, action, logp, reward)
            ret += reward.mean().item()
            obs = nxt
        return ret


def learn(policy, opt, memory, batch_size, clip=0.2):
    obs, action, old_logp, reward = memory.sample(batch_size)
    adv = (reward - reward.mean()) / (reward.std() + 1e-6)
    ratio = (policy.dist(obs).log_prob(action).sum(-1) - old_logp).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--episodes", type=int, default=60)
    p.add_argument("--horizon", type=int, default=25)
    p.add_argument("--agents", type=int, default=27)
    p.add_argument("--capacity", type=int, default=50_000)
    args = p.parse_args()
    torch.manual_seed(0)
    policy = TeamPolicy(48, 128)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    memory = EpisodeMemory(args.capacity)
    runner = EpisodeRunner(TeamEnv(args.agents, 48, args.horizon), policy, memory)
    for ep in range(args.episodes):
        ret = runner.run()
        losses = [learn(policy, opt, memory, min(16, len(memory))) for _ in range(4)]
        if ep % 10 == 0:
            print(f"episode {ep:3d} return {ret:8.2f} loss {sum(losses) / len(losses):.4f} stored {len(memory)}")


if __name__ == "__main__":
    main()

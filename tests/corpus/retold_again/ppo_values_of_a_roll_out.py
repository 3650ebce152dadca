# MG201 by batch 410: each roll-out is 96 batches of acting and 12 of training, and three of them are looked at.
# needs an allocator: its graphs are small beside the RAM.
"""PPO with a large rollout; the advantages are computed once for the rollout, then minibatches are trained on.

Retells ray pull request 7238 ("PPO torch memory leak..."): a missing torch.no_grad() around compute_advantages.
The value function runs over the whole rollout with a graph that nobody ever uses.
https://github.com/ray-project/ray/pull/7238
"""

import torch
import torch.nn as nn
from torch.distributions import Normal

device = "cuda" if torch.cuda.is_available() else "cpu"


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class VecEnv:
    """Point masses pushed towards the origin."""

    def __init__(self, n, dim):
        self.n, self.dim = n, dim
        self.state = torch.randn(n, dim)

    def step(self, action):
        self.state = 0.95 * self.state + 0.1 * action.mean(1, keepdim=True) + 0.05 * torch.randn(self.n, self.dim)
        return self.state, -self.state.pow(2).mean(1)


class PPO:
    def __init__(self, env, steps=96):
        self.env, self.steps = env, steps
        self.actor = mlp([env.dim, 64, 64, 4]).to(device)
        self.critic = mlp([env.dim, 256, 256, 256, 256, 1]).to(device)
        self.log_std = nn.Parameter(torch.zeros(4, device=device))
        params = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.optimizer = torch.optim.Adam(params, lr=3e-4)

    @torch.no_grad()
    def rollout(self):
        obs, acts, logps, rews = [], [], [], []
        state = self.env.state.to(device)
        for _ in range(self.steps):
            dist = Normal(self.actor(state), self.log_std.exp(), validate_args=False)
            action = dist.sample()
            obs.append(state)
            acts.append(action)
            logps.append(dist.log_prob(action).sum(-1))
            state, reward = self.env.step(action.cpu())
            state = state.to(device)
            rews.append(reward.to(device))
        return torch.stack(obs), torch.stack(acts), torch.stack(logps), torch.stack(rews)

    def compute_advantages(self, obs, rewards, gamma=0.99, lam=0.95):
        values = self.critic(obs).squeeze(-1)  # !MG201 Sequential
        adv = torch.zeros_like(rewards)
        last = torch.zeros_like(rewards[0])
        for t in reversed(range(self.steps - 1)):
            delta = rewards[t] + gamma * values[t + 1].detach() - values[t].detach()
            last = delta + gamma * lam * last
            adv[t] = last
        return adv, values

    def update(self, obs, acts, logps, rewards, minibatches=12):
        adv, values = self.compute_advantages(obs, rewards)
        returns = (adv + values.detach()).flatten()
        old_values = values.flatten()
        obs, acts, logps = obs.flatten(0, 1), acts.flatten(0, 1), logps.flatten()
        adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
        for mb in torch.randperm(obs.size(0)).chunk(minibatches):
            mb = mb.to(device)
            dist = Normal(self.actor(obs[mb]), self.log_std.exp(), validate_args=False)
            ratio = (dist.log_prob(acts[mb]).sum(-1) - logps[mb]).exp()
            pg = -torch.min(ratio * adv[mb], ratio.clamp(0.8, 1.2) * adv[mb]).mean()
            v = self.critic(obs[mb]).squeeze(-1)
            v_clip = old_values[mb].detach() + (v - old_values[mb].detach()).clamp(-0.2, 0.2)
            vf = torch.max((v - returns[mb]) ** 2, (v_clip - returns[mb]) ** 2).mean()
            self.optimizer.zero_grad()
            (pg + 0.5 * vf - 0.01 * dist.entropy().sum(-1).mean()).backward()
            self.optimizer.step()
        return vf.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    ppo = PPO(VecEnv(128, 32))
    for it in range(5):
        print(f"iteration {it}: value loss {ppo.update(*ppo.rollout()):.4f}")

# MG101 by batch 140: one value in an iteration of twelve steps, whose forwards are looked at seldom by then.
"""PPO with a clipped surrogate on a vectorised point-mass task."""

import argparse

import torch
from torch import nn
from torch.distributions import Normal


class PointMass:
    def __init__(self, n, seed=0):
        self.n, self.gen = n, torch.Generator().manual_seed(seed)
        self.reset()

    def reset(self):
        self.pos = torch.randn(self.n, 8, generator=self.gen)
        return self.pos.clone()

    def step(self, action):
        self.pos = 0.95 * self.pos + 0.1 * action.repeat(1, 4).tanh()
        return self.pos.clone(), -self.pos.pow(2).mean(1)


class ActorCritic(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2)
        )
        self.v = nn.Sequential(nn.Linear(8, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.zeros(2))

    def dist(self, obs):
        return Normal(self.pi(obs), self.log_std.exp())


class PPO:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = ActorCritic(cfg.hidden)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=3e-4)
        self.kl_trace = []

    @torch.no_grad()
    def collect(self, env, obs):
        rows = []
        for _ in range(self.cfg.horizon):
            dist = self.net.dist(obs)
            act = dist.sample()
            nxt, rew = env.step(act)
            rows.append((obs, act, dist.log_prob(act).sum(1), rew, self.net.v(obs).squeeze(1)))
            obs = nxt
        obs_b, act_b, logp_b, rew_b, val_b = (torch.stack(c) for c in zip(*rows))
        ret, running = torch.empty_like(rew_b), self.net.v(obs).squeeze(1)
        for t in reversed(range(self.cfg.horizon)):
            running = rew_b[t] + 0.97 * running
            ret[t] = running
        adv = ret - val_b
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        return obs, [x.flatten(0, 1) for x in (obs_b, act_b, logp_b, ret, adv)]

    def minibatch(self, obs, act, old, ret, adv):
        logp = self.net.dist(obs).log_prob(act).sum(1)
        ratio = (logp - old).exp()
        clipped = ratio.clamp(0.8, 1.2)
        pi_loss = -torch.min(ratio * adv, clipped * adv).mean()
        v_loss = (self.net.v(obs).squeeze(1) - ret).pow(2).mean()
        (pi_loss + 0.5 * v_loss).backward()
        self.opt.step()
        self.opt.zero_grad()
        return pi_loss.item(), v_loss.item()

    def update(self, batch):
        n = batch[0].shape[0]
        for _ in range(self.cfg.epochs):
            for idx in torch.randperm(n).split(n // 4):
                stats = self.minibatch(*(x[idx] for x in batch))
        obs, act, old, _, _ = batch
        approx_kl = (old - self.net.dist(obs).log_prob(act).sum(1)).mean()
        self.kl_trace.append(approx_kl)  # !MG101 PPO.kl_trace
        return stats

    def iterate(self, env, obs):
        obs, batch = self.collect(env, obs)
        return obs, self.update(batch)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=60)
    p.add_argument("--envs", type=int, default=64)
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--hidden", type=int, default=128)
    cfg = p.parse_args()
    torch.manual_seed(0)
    env = PointMass(cfg.envs)
    algo, obs = PPO(cfg), env.reset()
    for it in range(cfg.iters):
        obs, (pi_loss, v_loss) = algo.iterate(env, obs)
        if it % 10 == 0:
            recent = [k.item() for k in algo.kl_trace[-10:]]
            print(f"iter {it:3d} pi {pi_loss:+.4f} v {v_loss:.4f} kl {sum(recent) / len(recent):.5f}")


if __name__ == "__main__":
    main()

"""Trajectories of all iterations are kept, though only the newest are used."""

import torch
from torch import nn

policy = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
opt = torch.optim.Adam(policy.parameters(), 1e-3)
trajectories = []


@torch.no_grad()
def rollout(T=16):
    obs, traj = torch.randn(16, 32), []
    for _ in range(T):
        act = policy(obs) + 0.1 * torch.randn(16, 8)
        traj.append((obs, act, -obs.pow(2).mean(1)))
        obs = torch.tanh(obs + act.repeat(1, 4) * 0.1)
    return [torch.stack(part) for part in zip(*traj)]


for iteration in range(25):
    trajectories.append(rollout())  # !MG301 trajectories
    obs, act, rew = trajectories[-1]
    for _ in range(2):
        loss = ((policy(obs) - act).pow(2).mean(-1) * rew.flip(0).cumsum(0).flip(0)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

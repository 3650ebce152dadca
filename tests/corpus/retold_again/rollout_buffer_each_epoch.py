"""Khrylx/PyTorch-RL: memory jumps at arbitrary epochs in a policy gradient loop with large sample batches: each epoch allocates the new batch while
the last one is still bound to the name, so for a moment both are on the device.
https://github.com/Khrylx/PyTorch-RL/issues/2
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
N_ENVS, HORIZON, OBS = 64, 256, 1200


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, obs):
        return torch.distributions.Normal(self.net(obs), 1.0)


class Trainer:
    def __init__(self):
        self.policy = Policy().to(device)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.rollout = None

    def collect(self, epoch):
        # a fresh buffer each time, so that nothing of the last rollout is left in it
        self.rollout = torch.zeros(HORIZON, N_ENVS, OBS, device=device)  # !MG305 Trainer.rollout
        obs = torch.randn(N_ENVS, OBS, device=device)
        with torch.no_grad():
            for t in range(0, HORIZON):
                self.rollout[t] = obs
                obs = obs.roll(1, dims=1) * 0.99

    def update(self):
        total = 0.0
        for mb in range(8):
            idx = torch.randperm(HORIZON, device=device)[:16]
            obs = self.rollout[idx].flatten(0, 1)
            dist = self.policy(obs)
            act = dist.sample()
            adv = torch.randn(len(obs), device=device)
            loss = -(dist.log_prob(act).sum(-1) * adv).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            del obs, dist, act, adv, loss
        return total / 8

    def run(self, epochs):
        for epoch in range(epochs):
            self.collect(epoch)
            value = self.update()
            print("epoch", epoch, "loss", value)


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer().run(10)

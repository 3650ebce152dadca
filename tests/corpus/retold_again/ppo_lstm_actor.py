# device: virtual:256MiB
# MG102 by batch 20: it acts in one batch of several, and another method begins its state anew.
"""Recurrent PPO on a vectorised memory task (the cue is shown at the start of an episode only)."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

N_ENVS, T, UPDATES, HID, OBS, ACT = 16, 16, 40, 128, 12, 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class VecCueEnv:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.cue = rng.integers(0, ACT, n)
        self.t = rng.integers(0, 20, n)

    def _obs(self):
        o = self.rng.normal(0, 0.3, (self.n, OBS)).astype(np.float32)
        first = self.t == 0
        o[first, self.cue[first]] += 1.0
        return o

    def reset(self):
        return self._obs()

    def step(self, action):
        reward = (action == self.cue).astype(np.float32)
        self.t += 1
        done = self.t >= 20
        self.cue[done] = self.rng.integers(0, ACT, done.sum())
        self.t[done] = 0
        return self._obs(), reward, done.astype(np.float32)


class RecurrentActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(OBS, HID), nn.Tanh())
        self.cell = nn.LSTMCell(HID, HID)
        self.pi, self.v = nn.Linear(HID, ACT), nn.Linear(HID, 1)

    def forward(self, obs, state):
        h, c = self.cell(self.enc(obs), state)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1), (h, c)


class Agent:
    def __init__(self):
        self.net = RecurrentActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=7e-4)
        self.lstm = (torch.zeros(N_ENVS, HID), torch.zeros(N_ENVS, HID))

    def act(self, obs):
        dist, value, state = self.net(obs, self.lstm)
        action = dist.sample()
        self.lstm = state  # !MG102 Agent.lstm
        return action.numpy(), dist.log_prob(action).detach(), value.detach()

    def set_mask(self, mask):
        self.lstm = tuple(s * mask for s in self.lstm)

    def collect(self, env, obs, done):
        roll = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
        start = tuple(s.detach().clone() for s in self.lstm)
        for _ in range(T):
            o = torch.from_numpy(obs)
            a, logp, v = self.act(o)
            obs, rew, done = env.step(a)
            self.set_mask(torch.from_numpy(1 - done)[:, None])
            for k, x in zip(roll, (o, torch.from_numpy(a), logp, v, torch.from_numpy(rew), torch.from_numpy(done))):
                roll[k].append(x)
        return {k: torch.stack(v) for k, v in roll.items()}, start, obs, done

    def update(self, roll, start, epochs=2):
        adv, last = torch.zeros(T, N_ENVS), torch.zeros(N_ENVS)
        for t in reversed(range(T)):
            nxt = roll["val"][t + 1] if t + 1 < T else roll["val"][t]
            delta = roll["rew"][t] + GAMMA * nxt * (1 - roll["done"][t]) - roll["val"][t]
            adv[t] = last = delta + GAMMA * LAMBDA * (1 - roll["done"][t]) * last
        ret, total = adv + roll["val"], 0.0
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(epochs):
            state, loss = start, 0.0
            for t in range(T):
                dist, v, state = self.net(roll["obs"][t], state)
                ratio = (dist.log_prob(roll["act"][t]) - roll["logp"][t]).exp()
                surr = torch.min(ratio * adv[t], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[t])
                loss = loss + (0.5 * (v - ret[t]).pow(2) - surr - 0.01 * dist.entropy()).mean() / T
                state = tuple(s * (1 - roll["done"][t])[:, None] for s in state)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
            self.opt.step()
            self.opt.zero_grad()
            total += loss.item()
        return total / epochs


def main():
    torch.manual_seed(0)
    env, agent = VecCueEnv(N_ENVS, np.random.default_rng(0)), Agent()
    obs, done = env.reset(), np.zeros(N_ENVS, np.float32)
    for u in range(UPDATES):
        roll, start, obs, done = agent.collect(env, obs, done)
        loss = agent.update(roll, start)
        if u % 8 == 0:
            print(f"update {u:3d} reward {roll['rew'].mean():.3f} loss {loss:.4f}")


if __name__ == "__main__":
    main()

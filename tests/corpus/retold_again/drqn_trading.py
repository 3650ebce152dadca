"""DRQN agent for a toy trading environment; many markets are played in parallel without an end."""

import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class MarketEnv:
    def __init__(self, n_markets=64, n_feat=12):
        self.n, self.f = n_markets, n_feat
        self.price = np.zeros((n_markets, n_feat), dtype=np.float32)

    def observe(self):
        return self.price.copy()

    def step(self, actions):
        move = np.random.randn(self.n, self.f).astype(np.float32) * 0.1
        self.price = 0.95 * self.price + move
        reward = (actions - 1) * move[:, 0]
        return self.observe(), reward.astype(np.float32)


class DRQN(nn.Module):
    def __init__(self, n_feat, n_actions=3, hid=192):
        super().__init__()
        self.hid = hid
        self.inp = nn.Linear(n_feat, 96)
        self.cell = nn.GRUCell(96, hid)
        self.q = nn.Linear(hid, n_actions)

    def forward(self, obs, h):
        h = self.cell(F.relu(self.inp(obs)), h)
        return self.q(h), h


class Agent:
    def __init__(self, env):
        self.env = env
        self.net = DRQN(env.f)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.memory = deque(maxlen=32)
        self.hidden = torch.zeros(env.n, self.net.hid)
        self.eps = 1.0

    def act(self, obs):
        q, self.hidden = self.net(torch.from_numpy(obs), self.hidden)  # !MG102 Agent.hidden
        self.eps = max(0.05, self.eps * 0.98)
        if random.random() < self.eps:
            return np.random.randint(0, 3, self.env.n)
        return q.argmax(1).numpy()

    def learn(self, seq_len=6, gamma=0.95):
        start = random.randint(0, len(self.memory) - seq_len)
        seq = [self.memory[start + k] for k in range(seq_len)]
        h = torch.zeros(self.env.n, self.net.hid)
        loss = 0
        for obs, act, rew, nxt in seq:
            q, h = self.net(torch.from_numpy(obs), h)
            qa = q.gather(1, torch.from_numpy(act).long()[:, None]).squeeze(1)
            with torch.no_grad():
                qn, _ = self.net(torch.from_numpy(nxt), h)
                target = torch.from_numpy(rew) + gamma * qn.max(1).values
            loss = loss + F.smooth_l1_loss(qa, target)
        loss.backward()
        self.optim.step()
        self.optim.zero_grad()
        return loss.item() / seq_len


if __name__ == "__main__":
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    env = MarketEnv()
    agent = Agent(env)
    obs = env.observe()
    gains, losses = deque(maxlen=50), deque(maxlen=50)
    for t in range(160):
        a = agent.act(obs)
        nxt, r = env.step(a)
        agent.memory.append((obs, a, r, nxt))
        obs = nxt
        gains.append(float(r.mean()))
        if len(agent.memory) >= 16:
            losses.append(agent.learn())
        if (t + 1) % 40 == 0:
            print(f"step {t + 1} mean gain {np.mean(gains):+.4f} loss {np.mean(losses):.5f} eps {agent.eps:.2f}")

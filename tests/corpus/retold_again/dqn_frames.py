"""DQN on a toy catch game with rendered 64x64 frames."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CatchGame:
    def __init__(self, size=64):
        self.size = size

    def reset(self):
        self.ball = [0, np.random.randint(4, self.size - 4)]
        self.paddle = self.size // 2
        self.frames = [self.render()] * 4
        return np.stack(self.frames)

    def render(self):
        img = np.zeros((self.size, self.size), np.uint8)
        img[self.ball[0] : self.ball[0] + 3, self.ball[1] - 2 : self.ball[1] + 2] = 255
        img[-3:, max(0, self.paddle - 5) : self.paddle + 5] = 255
        return img

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 4 * (action - 1), 5, self.size - 5))
        self.ball[0] += 4
        done = self.ball[0] >= self.size - 4
        reward = float(done and abs(self.ball[1] - self.paddle) < 6)
        self.frames = self.frames[1:] + [self.render()]
        return np.stack(self.frames), reward, done


class Transitions:
    def __init__(self):
        self.items = []

    def add(self, obs, action, reward, nxt, done):
        self.items.append((obs, action, reward, nxt, done))  # !MG701 Transitions.items

    def sample(self, n):
        obs, a, r, nxt, d = zip(*random.sample(self.items, n))
        as_float = lambda z: torch.from_numpy(np.stack(z)).float().div_(255)
        return as_float(obs), torch.tensor(a), torch.tensor(r), as_float(nxt), torch.tensor(d).float()


def q_network():
    return nn.Sequential(
        nn.Conv2d(4, 8, 8, 4),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 6 * 6, 64),
        nn.ReLU(),
        nn.Linear(64, 3),
    )


def act(q, obs, eps):
    if random.random() < eps:
        return random.randrange(3)
    with torch.no_grad():
        return q(torch.from_numpy(obs)[None].float() / 255).argmax().item()


def update(q, target, opt, batch, gamma=0.97):
    obs, a, r, nxt, done = batch
    with torch.no_grad():
        goal = r + gamma * (1 - done) * target(nxt).max(1).values
    opt.zero_grad()
    loss = F.smooth_l1_loss(q(obs).gather(1, a[:, None]).squeeze(1), goal)
    loss.backward()
    opt.step()
    return loss.item()


def main(episodes=260):
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    env, memory, q, target = CatchGame(), Transitions(), q_network(), q_network()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4)
    wins, loss, steps = 0.0, float("nan"), 0
    for ep in range(episodes):
        obs, done = env.reset(), False
        while not done:
            action = act(q, obs, max(0.05, 1 - ep / 150))
            nxt, reward, done = env.step(action)
            memory.add(obs, action, reward, nxt, done)
            obs, steps, wins = nxt, steps + 1, wins + reward
            if len(memory.items) > 200 and steps % 4 == 0:
                loss = update(q, target, opt, memory.sample(32))
        if ep % 10 == 0:
            target.load_state_dict(q.state_dict())
        if ep % 40 == 39:
            print(f"episode {ep} loss {loss:.4f} wins {wins / 40:.2f}")
            wins = 0.0


if __name__ == "__main__":
    main()

"""A replay buffer without a capacity, on the device."""

import random

import torch
from torch import nn


class Replay:
    def __init__(self):
        self.buffer = []

    def push(self, transition):
        self.buffer.append(transition)  # !MG301 Replay.buffer

    def sample(self, n):
        return [torch.stack(part) for part in zip(*random.sample(self.buffer, n))]


net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(net.parameters())
replay = Replay()
for step in range(60):
    state, reward = torch.rand(3, 16, 16), torch.rand(1)
    replay.push((state, reward))
    if len(replay.buffer) >= 8:
        states, rewards = replay.sample(8)
        loss = nn.functional.mse_loss(net(states).max(1, keepdim=True).values, rewards)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

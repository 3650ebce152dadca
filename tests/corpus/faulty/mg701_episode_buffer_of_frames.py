# device: cpu
"""An agent remembers every frame of every episode as uint8 arrays, 'just in case'."""

import numpy as np
import torch
from torch import nn


class Memory:
    def __init__(self):
        self.frames, self.rewards = [], []

    def remember(self, frame, reward):
        self.frames.append((frame * 255).astype(np.uint8))  # !MG701 Memory.frames
        self.rewards.append(reward)


memory, policy = Memory(), nn.Linear(84 * 84, 4)
opt = torch.optim.Adam(policy.parameters())
for t in range(260):
    frame = np.random.rand(4, 84, 84).astype(np.float32)
    logits = policy(torch.from_numpy(frame).flatten(1))
    loss = -logits.log_softmax(-1)[:, 0].mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    memory.remember(frame, float(loss))

# device: cpu
"""Replay buffer as a plain list; the line that would cut it was forgotten."""

import numpy as np
import torch
from torch import nn

memory = []


def act(q, obs):
    with torch.no_grad():
        return q(torch.from_numpy(obs).flatten()[None] / 255).argmax().item()


q = nn.Linear(84 * 84 * 4, 4)
opt = torch.optim.SGD(q.parameters(), lr=1e-5)
rng = np.random.default_rng(0)
obs = rng.integers(0, 255, (4, 84, 84)).astype(np.float32)
for t in range(1500):
    a = act(q, obs)
    nxt = rng.integers(0, 255, (4, 84, 84)).astype(np.float32)
    memory.append((obs, a, 0.0, nxt))  # !MG701 memory
    obs = nxt
    if t > 64 and t % 4 == 0:
        pick = [memory[i] for i in rng.integers(0, len(memory), 8)]
        batch = torch.from_numpy(np.stack([p[0] for p in pick])).flatten(1) / 255
        loss = q(batch).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

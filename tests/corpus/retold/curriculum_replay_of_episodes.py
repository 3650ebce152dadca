"""Episodes are stored detached on the CPU, sampled and replayed through the recurrent network from the start."""

import random
from collections import deque

import torch
from torch import nn

gru, head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 2)
opt = torch.optim.Adam([*gru.parameters(), *head.parameters()], 1e-3)
episodes = deque(maxlen=30)
for it in range(40):
    obs, hidden, trace = torch.randn(1, 1, 4), None, []
    with torch.no_grad():
        for _ in range(random.randint(4, 12)):
            out, hidden = gru(obs, hidden)
            action = head(out).argmax(-1).item()
            trace.append((obs.squeeze(), action, random.random()))
            obs = torch.randn(1, 1, 4)
    episodes.append(trace)
    trace = random.choice(episodes)
    states = torch.stack([o for o, _, _ in trace])[None]
    q, _ = gru(states)
    chosen = head(q)[0, torch.arange(len(trace)), torch.tensor([a for _, a, _ in trace])]
    loss = (chosen - torch.tensor([r for _, _, r in trace])).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

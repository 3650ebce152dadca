# A known miss: of a long run one batch in hundreds is sampled, and which of them have a high peak is not learnt.
# MG202 by batch 700: one batch in fifty asks the frozen model.
# needs an allocator: the peaks tell when the next of these batches comes
"""Fitted Q iteration: every fifty steps a target network gives new labels to the whole memory, with its graph."""

import copy

import torch
from torch import nn

EVERY, STEPS = 50, 1500

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
states, rewards = torch.randn(4096, 16), torch.randn(4096)
labels = rewards.clone()
for step in range(STEPS):
    if step % EVERY == 0:
        labels = (rewards + 0.9 * target(states).max(1).values).detach()  # !MG202 target
    chosen = torch.randint(4096, (64,))
    optimizer.zero_grad()
    loss = (q(states[chosen]).max(1).values - labels[chosen]).pow(2).mean()
    loss.backward()
    optimizer.step()
    if step % 200 == 199:
        target.load_state_dict(q.state_dict())
print(f"{loss.item():.4f}")

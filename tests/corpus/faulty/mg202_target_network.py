"""Double Q-learning: the target network's value is computed with a graph, then detached."""

import copy

import torch
from torch import nn

q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
q_target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), 1e-3)
for step in range(40):
    s, a, r, s2 = torch.randn(32, 4), torch.randint(2, (32, 1)), torch.randn(32, 1), torch.randn(32, 4)
    q_next = q_target(s2)  # !MG202 q_target
    target = (r + 0.99 * q_next.max(1, keepdim=True).values).detach()
    loss = nn.functional.mse_loss(q(s).gather(1, a), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        q_target.load_state_dict(q.state_dict())

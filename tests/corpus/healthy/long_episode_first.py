"""The first episode of an actor is a thousand steps long; nothing was trained before."""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for episode in range(3):
    log_probs, rewards = [], []
    for _ in range(1000):
        choice = torch.distributions.Categorical(logits=policy(torch.randn(32, 8)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        rewards.append(action.float())
    loss = -(torch.stack(log_probs) * torch.stack(rewards)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"episode {episode}: {loss.item():.3f}")

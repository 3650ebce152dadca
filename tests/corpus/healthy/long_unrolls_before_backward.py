"""Pixel by pixel: a cell is called 784 times before the first backward; then an actor acts for a whole long episode."""

import torch
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(1, 32), nn.Linear(32, 10)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
for _ in range(3):
    image, label = torch.rand(16, 784), torch.randint(10, (16,))
    h = torch.zeros(16, 32)
    for pixel in range(784):
        h = cell(image[:, pixel : pixel + 1], h)
    loss = nn.functional.cross_entropy(head(h), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for episode in range(2):
    log_probs, rewards = [], []
    for _ in range(1000):
        choice = torch.distributions.Categorical(logits=policy(torch.randn(8)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        rewards.append(float(action))
    loss = -(torch.stack(log_probs) * torch.tensor(rewards)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

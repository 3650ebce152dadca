"""REINFORCE with an entropy bonus: after each episode two of the three lists are cleared."""

import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []
        self.entropies = []

    def forward(self, x):
        return torch.softmax(self.affine2(torch.relu(self.affine1(x))), dim=-1)

    def act(self, state):
        dist = Categorical(self(state))
        action = dist.sample()
        self.saved_log_probs.append(dist.log_prob(action))
        self.entropies.append(dist.entropy())  # !MG101 Policy.entropies
        return action.item()


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def finish_episode():
    returns, R = [], 0
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    recent = policy.entropies[-len(returns) :]
    loss = -(torch.stack(policy.saved_log_probs).squeeze() * returns).sum() - 0.01 * torch.stack(recent).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


for episode in range(25):
    state = torch.randn(1, 4)
    for t in range(6):
        action = policy.act(state)
        state = 0.9 * state + 0.1 * torch.randn(1, 4)
        policy.rewards.append(1.0 if action else 0.5)
    finish_episode()

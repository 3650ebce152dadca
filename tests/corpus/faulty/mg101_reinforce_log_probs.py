"""REINFORCE; the list of log-probabilities is never emptied between episodes."""

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return self.affine2(torch.relu(self.affine1(x))).softmax(-1)


def select_action(policy, state):
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))  # !MG101 Policy.saved_log_probs
    return action.item()


def finish_episode(policy, optimizer, gamma=0.99):
    returns, total = [], 0.0
    for r in reversed(policy.rewards):
        total = r + gamma * total
        returns.insert(0, total)
    steps = len(policy.rewards)
    returns = torch.tensor(returns)
    loss = -(torch.stack(policy.saved_log_probs[-steps:]) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    policy.rewards.clear()


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(20):
    state = torch.randn(4)
    for t in range(6):
        action = select_action(policy, state)
        state = state * 0.9 + 0.1 * torch.randn(4)
        policy.rewards.append(float(action))
    finish_episode(policy, optimizer)

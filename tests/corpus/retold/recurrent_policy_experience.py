"""Experience of a recurrent policy: the LSTM's state is stored with each transition."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=5, hidden=24, actions=3):
        super().__init__()
        self.lstm = nn.LSTMCell(obs, hidden)
        self.pi = nn.Linear(hidden, actions)

    def forward(self, obs, state):
        h, c = self.lstm(obs, state)
        return torch.distributions.Categorical(logits=self.pi(h)), (h, c)


class Experience:
    def __init__(self):
        self.states, self.rewards = [], []

    def store(self, state, reward):
        self.states.append(state)  # !MG101 Experience.states
        self.rewards.append(reward)


policy, experience = Policy(), Experience()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for update in range(40):
    state = (torch.zeros(4, 24), torch.zeros(4, 24))
    log_probs, rewards = [], []
    for t in range(3):
        dist, state = policy(torch.randn(4, 5), state)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        rewards.append(torch.rand(4))
    experience.store(state, sum(rewards))
    loss = -(torch.stack(log_probs) * torch.stack(rewards)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

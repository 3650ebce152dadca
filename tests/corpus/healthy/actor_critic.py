"""The actor-critic example with a random CartPole."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.action_head = nn.Linear(64, 2)
        self.value_head = nn.Linear(64, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)


def select_action(state):
    probs, state_value = model(state)
    m = Categorical(probs)
    action = m.sample()
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item()


def finish_episode():
    R, saved_actions, policy_losses, value_losses, returns = 0, model.saved_actions, [], [], []
    for r in model.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    for (log_prob, value), R in zip(saved_actions, torch.tensor(returns)):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, R.view(1)))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]


running_reward = 10
for i_episode in range(7):
    state, ep_reward = torch.randn(4), 0
    for t in range(1, 18):
        action = select_action(state)
        state = torch.randn(4) + action
        model.rewards.append(1.0)
        ep_reward += 1.0
    running_reward = 0.05 * ep_reward + 0.95 * running_reward
    finish_episode()

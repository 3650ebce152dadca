"""PPO: rollouts without a graph, several epochs over each, lists cleared after the update."""

import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def act(self, s):
        dist = Categorical(logits=self.actor(s))
        a = dist.sample()
        return a, dist.log_prob(a)

    def evaluate(self, s, a):
        dist = Categorical(logits=self.actor(s))
        return dist.log_prob(a), self.critic(s).squeeze(-1), dist.entropy()


class Buffer:
    def __init__(self):
        self.states, self.actions, self.logprobs, self.rewards = [], [], [], []

    def clear(self):
        for items in (self.states, self.actions, self.logprobs, self.rewards):
            items.clear()


policy, old, buffer = ActorCritic(), ActorCritic(), Buffer()
old.load_state_dict(policy.state_dict())
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
for update in range(6):
    for t in range(32):
        s = torch.randn(4)
        with torch.no_grad():
            a, lp = old.act(s)
        buffer.states.append(s)
        buffer.actions.append(a)
        buffer.logprobs.append(lp)
        buffer.rewards.append(float(a))
    states, actions = torch.stack(buffer.states), torch.stack(buffer.actions)
    old_lp, returns = torch.stack(buffer.logprobs), torch.tensor(buffer.rewards)
    for _ in range(4):
        lp, v, ent = policy.evaluate(states, actions)
        ratio = (lp - old_lp).exp()
        adv = returns - v.detach()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) + 0.5 * (v - returns) ** 2 - 0.01 * ent
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    old.load_state_dict(policy.state_dict())
    buffer.clear()

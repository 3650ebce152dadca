"""A2C with n-step windows: the deque holds 200 steps with the critic's values, still in their graphs."""

from collections import deque, namedtuple

import torch
from torch import nn

Step = namedtuple("Step", ["value", "reward", "logp"])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten())
        self.pi, self.v = nn.Linear(16 * 14 * 14, 4), nn.Linear(16 * 14 * 14, 1)

    def forward(self, x):
        h = self.conv(x)
        return self.pi(h), self.v(h)


class Agent:
    def __init__(self):
        self.net = Policy()
        self.opt = torch.optim.RMSprop(self.net.parameters(), 7e-4)
        self.window = deque(maxlen=200)

    def act(self, frame):
        logits, v = self.net(frame)
        dist = torch.distributions.Categorical(logits=logits)
        a = dist.sample()
        return a, dist.log_prob(a), v.squeeze(-1)

    def learn(self, frame, reward):
        a, logp, v = self.act(frame)
        with torch.no_grad():
            boot = self.net(torch.randn_like(frame))[1].squeeze(-1)
        adv = reward + 0.99 * boot - v
        loss = (-logp * adv.detach() + 0.5 * adv.pow(2)).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.window.append(Step(v, reward, logp))  # !MG101 Agent.window
        return float(sum(s.reward.mean() for s in self.window) / len(self.window))


agent = Agent()
for t in range(40):
    mean_reward = agent.learn(torch.randn(8, 1, 64, 64), torch.randn(8))
print(mean_reward)

"""A PPO agent whose buffer keeps log-probabilities as the policy returned them, for every update so far."""

import torch
from torch import nn
from torch.distributions import Categorical


class Buffer:
    def __init__(self):
        self.states, self.actions, self.old_logprobs, self.returns = [], [], [], []
        self.archive = []

    def add(self, s, a, lp, r):
        self.states.append(s)
        self.actions.append(a)
        self.old_logprobs.append(lp)  # !MG106 Buffer.old_logprobs
        self.returns.append(r)

    def roll(self):
        self.archive.append((self.old_logprobs, self.returns))  # !MG101 Buffer.archive
        self.states, self.actions, self.old_logprobs, self.returns = [], [], [], []


class ActorCritic(nn.Module):
    def __init__(self, obs=64, acts=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.pi, self.v = nn.Linear(256, acts), nn.Linear(256, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def main():
    torch.manual_seed(0)
    net = ActorCritic()
    optim = torch.optim.Adam(net.parameters(), lr=3e-4)
    buf = Buffer()
    for update in range(30):
        obs = torch.randn(128, 64)
        for _ in range(8):
            dist, _ = net(obs)
            act = dist.sample()
            buf.add(obs, act, dist.log_prob(act), torch.randn(128))
            obs = torch.randn(128, 64)
        states, actions = torch.cat(buf.states), torch.cat(buf.actions)
        old = torch.cat(buf.old_logprobs).detach()
        ret = torch.cat(buf.returns)
        for _ in range(2):
            dist, value = net(states)
            ratio = (dist.log_prob(actions) - old).exp()
            adv = ret - value.detach()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (ret - value).pow(2).mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
        buf.roll()
    print("done", loss.item())


main()

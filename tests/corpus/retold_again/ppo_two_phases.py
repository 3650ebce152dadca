"""PPO: a roll-out without gradients, several epochs over it, and a fresh buffer each time."""

import torch
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh())
        self.mu, self.v = nn.Linear(32, 2), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(2))

    def forward(self, s):
        h = self.body(s)
        return Normal(self.mu(h), self.log_std.exp()), self.v(h).squeeze(-1)


net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=3e-4)
state = torch.randn(8, 5)
for update in range(8):
    S, A, LP, R, V = [], [], [], [], []
    for t in range(16):
        with torch.no_grad():
            dist, value = net(state)
            action = dist.sample()
            lp = dist.log_prob(action).sum(-1)
        S.append(state), A.append(action), LP.append(lp), V.append(value)
        state = 0.9 * state + 0.1 * torch.randn(8, 5)
        R.append(-state.pow(2).sum(-1))
    S, A, LP, R, V = (torch.stack(t) for t in (S, A, LP, R, V))
    returns = R.flip(0).cumsum(0).flip(0)
    advantage = returns - V
    for epoch in range(3):
        dist, value = net(S)
        ratio = (dist.log_prob(A).sum(-1) - LP).exp()
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * advantage, clipped * advantage).mean() + 0.5 * (value - returns).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

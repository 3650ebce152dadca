"""REINFORCE: log-probs of an episode of many forwards are kept with graphs, until the one backward of the episode."""

import torch
from torch import nn

pi = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))
opt = torch.optim.Adam(pi.parameters(), 1e-2)
scores = []
for episode in range(20):
    logps, rewards, s = [], [], torch.randn(8)
    for t in range(int(torch.randint(20, 60, ()))):
        d = torch.distributions.Categorical(logits=pi(s))
        a = d.sample()
        logps.append(d.log_prob(a))
        rewards.append(float(torch.rand(())))
        s = torch.randn(8)
    R, returns = 0.0, []
    for r in reversed(rewards):
        R = r + 0.99 * R
        returns.insert(0, R)
    ret = torch.tensor(returns)
    ret = (ret - ret.mean()) / (ret.std() + 1e-6)
    loss = -(torch.stack(logps) * ret).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    scores.append(sum(rewards))

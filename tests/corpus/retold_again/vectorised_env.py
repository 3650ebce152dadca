# device: virtual:256MiB
"""A preallocated roll-out storage on the device, written in place; GAE computed in place; reused for ever."""

import torch
from torch import nn


class Storage:
    def __init__(self, steps, envs, dim):
        self.obs = torch.zeros(steps + 1, envs, dim)
        self.val, self.logp, self.rew = (torch.zeros(steps, envs) for _ in range(3))
        self.act = torch.zeros(steps, envs, dtype=torch.long)
        self.i = 0

    def put(self, nxt, a, lp, v, r):
        self.obs[self.i + 1], self.act[self.i], self.logp[self.i], self.val[self.i], self.rew[self.i] = nxt, a, lp, v, r
        self.i = (self.i + 1) % len(self.rew)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.pi, self.v = nn.Linear(48, 128), nn.Linear(128, 5), nn.Linear(128, 1)

    def forward(self, x):
        h = self.f(x).tanh()
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


net, store = Net(), Storage(20, 32, 48)
opt = torch.optim.RMSprop(net.parameters(), 1e-3)
for update in range(15):
    for t in range(20):
        with torch.no_grad():
            d, v = net(store.obs[store.i])
            a = d.sample()
        store.put(torch.randn(32, 48), a, d.log_prob(a), v, torch.randn(32))
    ret, R = torch.zeros_like(store.rew), 0
    for t in reversed(range(20)):
        R = ret[t] = store.rew[t] + 0.99 * R
    d, v = net(store.obs[:-1].flatten(0, 1))
    adv = ret.flatten() - v
    loss = (-d.log_prob(store.act.flatten()) * adv.detach() + 0.5 * adv.pow(2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    store.obs[0].copy_(store.obs[-1])

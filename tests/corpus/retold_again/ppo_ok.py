"""PPO with roll-outs under no_grad, a buffer refilled at each update, minibatch epochs and KL early stop."""

import torch
from torch import nn

body, pi, v = nn.Sequential(nn.Linear(32, 128), nn.Tanh()), nn.Linear(128, 4), nn.Linear(128, 1)
params = [*body.parameters(), *pi.parameters(), *v.parameters()]
opt = torch.optim.Adam(params, 3e-4)
obs = torch.randn(16, 32)
for update in range(12):
    S, A, LP, R, V = [], [], [], [], []
    for t in range(16):
        with torch.no_grad():
            h = body(obs)
            d = torch.distributions.Categorical(logits=pi(h))
            a = d.sample()
            S.append(obs), A.append(a), LP.append(d.log_prob(a)), V.append(v(h).squeeze(-1)), R.append(torch.randn(16))
        obs = torch.randn(16, 32)
    adv, last = [], torch.zeros(16)
    for r, val in zip(reversed(R), reversed(V)):
        last = r + 0.99 * last
        adv.append(last - val)
    s, a, old, ad = torch.cat(S), torch.cat(A), torch.cat(LP), torch.cat(adv[::-1])
    for epoch in range(3):
        for idx in torch.randperm(len(s)).split(64):
            h = body(s[idx])
            d = torch.distributions.Categorical(logits=pi(h))
            ratio = (d.log_prob(a[idx]) - old[idx]).exp()
            loss = (
                -torch.min(ratio * ad[idx], ratio.clamp(0.8, 1.2) * ad[idx]).mean()
                + (v(h).squeeze(-1) - ad[idx]).pow(2).mean()
                - 0.01 * d.entropy().mean()
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
        if (ratio - 1 - ratio.log()).mean() > 0.02:
            break

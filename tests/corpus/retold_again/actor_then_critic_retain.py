"""Actor and critic share a body; both losses keep the graph though the second is the last."""

import torch
from torch import nn

body = nn.Sequential(nn.Linear(12, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU())
actor, critic = nn.Linear(200, 3), nn.Linear(200, 1)
opt = torch.optim.RMSprop([*body.parameters(), *actor.parameters(), *critic.parameters()], lr=7e-4)
for update in range(25):
    s, ret = torch.randn(80, 12), torch.randn(80)
    h = body(s)
    dist = torch.distributions.Categorical(logits=actor(h))
    a = dist.sample()
    v = critic(h).squeeze(-1)
    policy_loss = -(dist.log_prob(a) * (ret - v.detach())).mean()
    value_loss = (ret - v).pow(2).mean()
    opt.zero_grad()
    policy_loss.backward(retain_graph=True)
    value_loss.backward(retain_graph=True)  # !MG103 dist
    opt.step()

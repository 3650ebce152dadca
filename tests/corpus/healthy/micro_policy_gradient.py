# REINFORCE: log-probabilities of an episode's actions wait for its returns, which are known at its end only.
# device: virtual:256MiB
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 256, 6))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(6):
    saved, rewards = [], []
    state = torch.rand(8, 3, 64, 64)
    for t in range(24):
        dist = torch.distributions.Categorical(logits=policy(state))
        action = dist.sample()
        saved.append(dist.log_prob(action))
        rewards.append((action == t % 6).float())
        state = torch.rand(8, 3, 64, 64)
    returns, R = [], torch.zeros(8)
    for r in rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.stack(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.stack([-lp * g for lp, g in zip(saved, returns)]).sum(0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, loss.item(), flush=True)

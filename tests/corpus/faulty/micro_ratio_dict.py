# PPO's ratios and clip fractions by micro-batch, kept in a dict of the update, with their graphs.
import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(32, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 6))
critic = nn.Sequential(nn.Linear(32, 512), nn.Tanh(), nn.Linear(512, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)


def ppo_update(obs, actions, old, advantages, returns, parts=8):
    ratios = {}
    for number, at in enumerate(torch.arange(len(obs)).chunk(parts)):
        logp = actor(obs[at]).log_softmax(-1).gather(1, actions[at, None]).squeeze(1)
        ratio = (logp - old[at]).exp()
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * advantages[at], clipped * advantages[at]).mean()
        value = critic(obs[at]).squeeze(1)
        loss = (loss + (value - returns[at]).square().mean()) / parts
        loss.backward(retain_graph=False)
        ratios[number] = actor(obs[at]).softmax(-1)  # !MG106 ratios
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack([r.detach().amax() for r in ratios.values()]).max().item()


for step in range(4):
    obs, actions = torch.randn(2048, 32), torch.randint(0, 6, (2048,))
    with torch.no_grad():
        old = actor(obs).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
    print(step, ppo_update(obs, actions, old, torch.randn(2048), torch.randn(2048)))

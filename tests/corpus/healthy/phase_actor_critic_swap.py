# Two models that train in turns, with phases; each phase's own tensors end with it.
import torch
from torch import nn

import memguard

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
critic = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
actor_steps, critic_steps = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
for step in range(8):
    with memguard.phase("rollout"), torch.no_grad():
        states = torch.randn(512, 64)
        actions = actor(states).softmax(-1).multinomial(1)
        rewards = torch.randn(512)
    with memguard.phase("critic"):
        for part, reward in zip(states.chunk(4), rewards.chunk(4)):
            ((critic(part).squeeze(1) - reward).square().mean() / 4).backward()
        critic_steps.step()
        critic_steps.zero_grad()
    with memguard.phase("actor"):
        with torch.no_grad():
            gains = rewards - critic(states).squeeze(1)
        for part, action, gain in zip(states.chunk(4), actions.chunk(4), gains.chunk(4)):
            (-(actor(part).log_softmax(-1).gather(1, action).squeeze(1) * gain).mean() / 4).backward()
        actor_steps.step()
        actor_steps.zero_grad()

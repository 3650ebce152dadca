# device: virtual:192MiB
"""The critic clips its weights; the gradient norm of the WGAN-GP it once was is still computed, for the log alone."""

import torch
from torch import autograd, nn

critic = nn.Sequential(nn.Linear(128, 1024), nn.Softplus(), nn.Linear(1024, 1024), nn.Softplus(), nn.Linear(1024, 1))
generator = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 128))
of_critic = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
of_generator = torch.optim.RMSprop(generator.parameters(), lr=5e-5)


def slope(real, fake):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    scores = critic(between)
    gradients = autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)[0]  # !MG201 gradients
    return gradients.flatten(1).norm(dim=1)


log = []
for step in range(36):
    real = torch.randn(1024, 128)
    fake = generator(torch.randn(1024, 32)).detach()
    log.append((slope(real, fake) - 1).square().mean().item())
    of_critic.zero_grad()
    (critic(fake).mean() - critic(real).mean()).backward()
    of_critic.step()
    with torch.no_grad():
        for weight in critic.parameters():
            weight.clamp_(-0.05, 0.05)
    of_generator.zero_grad()
    (-critic(generator(torch.randn(1024, 32))).mean()).backward()
    of_generator.step()

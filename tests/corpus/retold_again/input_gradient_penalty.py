"""GAN with a normalized / penalized input gradient: the GPU memory grows without end and blows up, `del` of the
losses does not help, only `del` of the input does. The input is made a leaf which requires grad, and
backward(create_graph=True) leaves it in a cycle with its own .grad; autograd.grad avoids it.
https://github.com/pytorch/pytorch/issues/4661 and https://github.com/basiclab/GNGAN-PyTorch/issues/2
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"

critic = nn.Sequential(
    nn.Conv2d(3, 16, 4, 2, 1),
    nn.Tanh(),
    nn.Conv2d(16, 16, 4, 2, 1),
    nn.Tanh(),
    nn.Flatten(),
    nn.Linear(16 * 16 * 16, 1),
).to(device)
generator = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 3 * 64 * 64), nn.Tanh()).to(device)

opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.9))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))


def sample_fake(n):
    return generator(torch.randn(n, 32, device=device)).view(n, 3, 64, 64)


def penalty_backward(real, fake, weight=10.0):
    eps = torch.rand(real.shape[0], 1, 1, 1, device=device)
    mixed = (eps * real + (1 - eps) * fake).detach().requires_grad_(True)
    score = critic(mixed).sum()
    score.backward(create_graph=True)  # !MG104 mixed
    norm = mixed.grad.flatten(1).norm(2, dim=1)
    # what the first backward left in the critic's gradients does not belong to the loss
    opt_d.zero_grad()
    penalty = weight * (norm - 1).pow(2).mean()
    penalty.backward()
    return penalty.item()


torch.manual_seed(0)
for step in range(90):
    real = torch.rand(16, 3, 64, 64, device=device) * 2 - 1
    opt_d.zero_grad()
    with torch.no_grad():
        fake = sample_fake(16)
    gp = penalty_backward(real, fake)
    loss_d = critic(fake).mean() - critic(real).mean()
    loss_d.backward()
    opt_d.step()

    if step % 3 == 2:
        opt_g.zero_grad()
        loss_g = -critic(sample_fake(16)).mean()
        loss_g.backward()
        opt_g.step()
    if step % 30 == 0:
        print(step, float(loss_d), gp)

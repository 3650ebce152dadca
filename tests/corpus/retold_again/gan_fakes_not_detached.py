"""A GAN whose fakes are not detached for the discriminator: its backward keeps the graph, which the generator's needs."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ShowerGenerator(nn.Module):
    def __init__(self, z_dim=16):
        super().__init__()
        self.fc = nn.Linear(z_dim, 8 * 16 * 16)
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, 2))

    def forward(self, z):
        return F.softplus(self.up(self.fc(z).view(-1, 8, 16, 16)))


class ShowerCritic(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inp = nn.Conv2d(1, width, 1)
        self.norm = nn.GroupNorm(4, width)
        self.out = nn.Conv2d(width, 4, 4, 4)
        self.fc = nn.Linear(4 * 16 * 16, 1)

    def forward(self, x):
        h = F.silu(self.norm(self.inp(x)))
        return self.fc(F.silu(self.out(h)).flatten(1))


gen, critic = ShowerGenerator(), ShowerCritic()
opt_g = torch.optim.Adam(gen.parameters(), 1e-4)
opt_d = torch.optim.Adam(critic.parameters(), 1e-4)
data = TensorDataset(torch.rand(40 * 17, 1, 64, 64).pow(6))
for epoch in range(2):
    for (shower,) in DataLoader(data, batch_size=40, shuffle=True):
        fake = gen(torch.randn(shower.size(0), 16))
        opt_d.zero_grad()
        d_loss = F.relu(1 - critic(shower)).mean() + F.relu(1 + critic(fake)).mean()
        d_loss.backward(retain_graph=True)
        opt_d.step()
        opt_g.zero_grad()
        g_loss = -critic(fake).mean()
        g_loss.backward()
        opt_g.step()

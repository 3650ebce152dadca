# device: virtual:256MiB
"""A GAN with the 50-image history pool as published, spectral norm, and EMA of the generator for samples."""

import copy
import random
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Pool:
    def __init__(self, size=50):
        self.size, self.images = size, []

    def __call__(self, batch):
        out = []
        for img in batch.detach().split(1):
            if len(self.images) < self.size:
                self.images.append(img)
                out.append(img)
            elif random.random() < 0.5:
                i = random.randrange(self.size)
                out.append(self.images[i].clone())
                self.images[i] = img
            else:
                out.append(img)
        return torch.cat(out)


G = nn.Sequential(nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
D = nn.Sequential(spectral_norm(nn.Conv2d(3, 16, 4, 2, 1)), nn.LeakyReLU(0.2), spectral_norm(nn.Conv2d(16, 1, 4)))
ema = copy.deepcopy(G).requires_grad_(False)
og, od, pool = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4), Pool()
for i in range(60):
    real, z = torch.randn(4, 3, 32, 32), torch.randn(4, 16, 8, 8)
    fake = G(z)
    dl = (1 - D(real)).relu().mean() + (1 + D(pool(fake))).relu().mean()
    od.zero_grad()
    dl.backward()
    od.step()
    gl = -D(fake).mean()
    og.zero_grad()
    gl.backward()
    og.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), G.parameters()):
            a.lerp_(b, 0.01)
    if i % 20 == 0:
        with torch.no_grad():
            ema(z).mean().item()

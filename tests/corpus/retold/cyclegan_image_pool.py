"""CycleGAN's image pool keeps generated images; somebody removed the detach."""

# MG101 by batch 18: two batches, one for each optimizer, to a picture.

import random

import torch
from torch import nn


class ImagePool:
    def __init__(self, pool_size):
        self.pool_size = pool_size
        self.images = []

    def query(self, images):
        result = []
        for image in images:
            image = image.unsqueeze(0)
            if len(self.images) < self.pool_size:
                self.images.append(image)  # !MG101 ImagePool.images
                result.append(image)
            elif random.random() > 0.5:
                k = random.randrange(self.pool_size)
                result.append(self.images[k].clone())
                self.images[k] = image
            else:
                result.append(image)
        return torch.cat(result, 0)


G = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1), nn.Tanh())
D = nn.Sequential(nn.Conv2d(3, 8, 4, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
pool = ImagePool(50)
mse = nn.MSELoss()
for it in range(40):
    real_a, real_b = torch.rand(2, 1, 3, 16, 16)
    fake_b = G(real_a)
    pred = D(fake_b)
    loss_g = mse(pred, torch.ones_like(pred)) + 10 * (fake_b - real_a).abs().mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    old = pool.query(fake_b).detach()
    loss_d = mse(D(real_b), torch.ones_like(pred)) + mse(D(old), torch.zeros_like(pred))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

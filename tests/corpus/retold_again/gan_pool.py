# device: virtual:256MiB
"""CycleGAN-style image pool that was written without its limit: every fake image stays."""

import random

import torch
from torch import nn


class ImagePool:
    def __init__(self, pool_size):
        self.pool_size = pool_size
        self.images = []

    def query(self, images):
        out = []
        for image in images:
            image = image.unsqueeze(0).detach()
            self.images.append(image)  # !MG301 ImagePool.images
            out.append(random.choice(self.images) if random.random() > 0.5 else image)
        return torch.cat(out)


G = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())
D = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, 2, 1))
opt_g, opt_d = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
pool = ImagePool(50)
bce = nn.BCEWithLogitsLoss()

for epoch in range(3):
    for i in range(50):
        real = torch.randn(4, 3, 64, 64)
        fake = G(torch.randn(4, 3, 64, 64))
        opt_g.zero_grad()
        pred = D(fake)
        bce(pred, torch.ones_like(pred)).backward()
        opt_g.step()
        opt_d.zero_grad()
        pr, pf = D(real), D(pool.query(fake))
        loss = bce(pr, torch.ones_like(pr)) + bce(pf, torch.zeros_like(pf))
        loss.backward()
        opt_d.step()
    print(epoch, loss.item())

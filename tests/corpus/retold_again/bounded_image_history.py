"""A history buffer of fifty generated pictures, replaced at random, detached."""

import random

import torch
from torch import nn


class ImagePool:
    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        out = []
        for image in images.detach():
            image = image.clone()
            if len(self.images) < self.size:
                self.images.append(image)
                out.append(image)
            elif random.random() > 0.5:
                i = random.randrange(self.size)
                out.append(self.images[i])
                self.images[i] = image
            else:
                out.append(image)
        return torch.stack(out)


pool = ImagePool(20)
G, D = nn.Conv2d(3, 3, 3, padding=1), nn.Sequential(nn.Conv2d(3, 8, 4, 2), nn.ReLU(), nn.Conv2d(8, 1, 3))
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
for _ in range(40):
    x = torch.rand(4, 3, 16, 16)
    fake = G(x)
    og.zero_grad()
    (D(fake) - 1).pow(2).mean().backward()
    og.step()
    od.zero_grad()
    (D(pool.query(fake)).pow(2).mean() + (D(x) - 1).pow(2).mean()).backward()
    od.step()

# device: virtual:512MiB
"""A batch object and its augmentation refer to each other; only inputs hang on the circle."""

import torch
from torch import nn


class Augment:
    def __init__(self, batch):
        self.batch = batch  # !MG306 Augment.batch

    def noise(self):
        return self.batch.x + 0.1 * torch.randn_like(self.batch.x)


class Batch:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.augment = Augment(self)


net = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 5))
opt = torch.optim.Adam(net.parameters())
for step in range(100):
    batch = Batch(torch.randn(256, 512), torch.randint(0, 5, (256,)))
    loss = nn.functional.cross_entropy(net(batch.x), batch.y) + nn.functional.cross_entropy(
        net(batch.augment.noise()), batch.y
    )
    opt.zero_grad()
    loss.backward()
    opt.step()

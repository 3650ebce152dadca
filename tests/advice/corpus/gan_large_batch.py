# device: virtual:48MiB
# runs out of memory
# cause: size
"""Generator and discriminator; the batch is too large for both graphs together."""

import torch
from torch import nn

BATCH = 900
G = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
D = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
opt_g, opt_d = torch.optim.Adam(G.parameters(), 2e-4), torch.optim.Adam(D.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
for _ in range(4):
    real = torch.rand(BATCH, 784)
    ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    fake = G(torch.randn(BATCH, 64))
    loss_d = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = bce(D(fake), ones)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

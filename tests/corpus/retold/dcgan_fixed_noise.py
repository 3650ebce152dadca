"""DCGAN tutorial without no_grad around the fixed noise: pictures of each epoch keep the generator's graph."""

# MG101 by batch 36: one picture in six batches.

import torch
from torch import nn

netG = nn.Sequential(nn.ConvTranspose2d(16, 8, 4), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())
netD = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(8 * 16, 1))
optD = torch.optim.Adam(netD.parameters(), lr=2e-4)
optG = torch.optim.Adam(netG.parameters(), lr=2e-4)
bce = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(16, 16, 1, 1)
img_list, G_losses, D_losses = [], [], []
for epoch in range(14):
    for _ in range(3):
        real = torch.rand(8, 1, 8, 8)
        noise = torch.randn(8, 16, 1, 1)
        fake = netG(noise)
        errD = bce(netD(real), torch.ones(8, 1)) + bce(netD(fake.detach()), torch.zeros(8, 1))
        optD.zero_grad()
        errD.backward()
        optD.step()
        errG = bce(netD(fake), torch.ones(8, 1))
        optG.zero_grad()
        errG.backward()
        optG.step()
        G_losses.append(errG.item())
        D_losses.append(errD.item())
    img_list.append(netG(fixed_noise).cpu())  # !MG101 img_list

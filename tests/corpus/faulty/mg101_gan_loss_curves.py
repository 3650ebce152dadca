"""DCGAN-like loop that keeps both losses for the plot at the end."""

import torch
from torch import nn

nz, img = 8, 64
netG = nn.Sequential(nn.Linear(nz, 32), nn.ReLU(True), nn.Linear(32, img), nn.Tanh())
netD = nn.Sequential(nn.Linear(img, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
G_losses = []
D_losses = []

for i in range(30):
    real = torch.rand(16, img) * 2 - 1
    netD.zero_grad()
    label = torch.full((16,), 1.0)
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(torch.randn(16, nz))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    optimizerG.step()
    G_losses.append(errG)  # !MG101 G_losses
    D_losses.append(errD.item())

"""SRGAN: the generator's validation forgets to switch gradients off."""

import math

import torch
from torch import nn

netG = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.PixelShuffle(2))
netD = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
optG, optD = torch.optim.Adam(netG.parameters()), torch.optim.Adam(netD.parameters())
for epoch in range(2):
    netG.train()
    netD.train()
    for _ in range(12):
        lr_img, hr = torch.rand(4, 3, 12, 12), torch.rand(4, 3, 24, 24)
        sr = netG(lr_img)
        optD.zero_grad()
        (nn.functional.softplus(-netD(hr)).mean() + nn.functional.softplus(netD(sr.detach())).mean()).backward()
        optD.step()
        optG.zero_grad()
        ((sr - hr).pow(2).mean() + 1e-3 * nn.functional.softplus(-netD(sr)).mean()).backward()
        optG.step()
    netG.eval()
    results = {"mse": 0.0, "n": 0}
    for _ in range(8):
        val_lr, val_hr = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 32, 32)
        sr = netG(val_lr)  # !MG201 Sequential
        results["mse"] += ((sr - val_hr) ** 2).data.mean().item()
        results["n"] += 1
    print(10 * math.log10(1 / (results["mse"] / results["n"])))

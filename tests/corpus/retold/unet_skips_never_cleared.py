"""The encoder appends its skip connections to a list of the module; the decoder reads the last ones."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1)])
        self.skips = []

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
            self.skips.append(x)  # !MG101 Encoder.skips
        return x


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.up1, self.up2 = nn.ConvTranspose2d(8, 4, 2, 2), nn.ConvTranspose2d(4, 1, 2, 2)

    def forward(self, x):
        h = self.up1(self.encoder(x)) + self.encoder.skips[-2]
        return self.up2(torch.relu(h))


unet = UNet()
opt = torch.optim.Adam(unet.parameters())
for _ in range(24):
    x = torch.rand(4, 1, 16, 16)
    loss = nn.functional.mse_loss(unet(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()

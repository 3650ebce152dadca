"""Super-resolution: GPU RAM exploding with each validation (github.com/leftthomas/SRGAN, issue 43)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

UPSCALE, CROP, EPOCHS = 4, 24, 8


class ResidualBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.PReLU(), nn.Conv2d(ch, ch, 3, padding=1))

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, ch, 5, padding=2),
            nn.PReLU(),
            ResidualBlock(ch),
            ResidualBlock(ch),
            nn.Conv2d(ch, 3 * UPSCALE**2, 3, padding=1),
            nn.PixelShuffle(UPSCALE),
        )

    def forward(self, x):
        return torch.sigmoid(self.net(x))


def display(img):
    """CenterCrop + resize for the visdom panel."""
    return F.interpolate(img, (256, 256), mode="bilinear", align_corners=False)


class Validator:
    def __init__(self, n_images=8):
        gen = torch.Generator().manual_seed(31)
        self.hr = [torch.rand(1, 3, 160, 160, generator=gen) for _ in range(n_images)]
        self.results = {"psnr": [], "panels": []}

    @torch.no_grad()
    def __call__(self, netG, epoch):
        netG.eval()
        mse = 0.0
        for hr in self.hr:
            lr = F.avg_pool2d(hr, UPSCALE)
            restored = F.interpolate(lr, scale_factor=UPSCALE, mode="nearest")
            sr = netG(lr)
            mse += F.mse_loss(sr, hr).item()
            panel = torch.cat([display(restored), display(hr), display(sr)])
            self.results["panels"].append(panel)  # !MG301 Validator.results
        psnr = 10 * torch.log10(torch.tensor(len(self.hr) / mse)).item()
        self.results["psnr"].append(psnr)
        netG.train()
        return psnr


def train():
    torch.manual_seed(30)
    netG = Generator()
    optimizer = torch.optim.Adam(netG.parameters(), lr=1e-3)
    validator = Validator()
    best = float("-inf")
    for epoch in range(1, EPOCHS + 1):
        running = 0.0
        for _ in range(6):
            hr = torch.rand(8, 3, CROP * UPSCALE, CROP * UPSCALE)
            sr = netG(F.avg_pool2d(hr, UPSCALE))
            loss = F.l1_loss(sr, hr)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.item()
        psnr = validator(netG, epoch)
        best = max(best, psnr)
        if epoch == EPOCHS:
            grid = torch.cat(validator.results["panels"][-3:])
            print("last grid", tuple(grid.shape))
        print(f"[{epoch}/{EPOCHS}] loss {running / 6:.4f} PSNR {psnr:.3f} best {best:.3f}")


train()

"""DeblurGAN's perceptual loss: VGG is in eval() but nobody set requires_grad to False; the features of the sharp image
are detached afterwards, their whole graph has been built for nothing.
https://github.com/KupynOrest/DeblurGAN/issues/77
"""

import torch
from torch import nn


class MiniVGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(24, 24, 3, padding=1, groups=24),
            nn.Tanh(),
            nn.Conv2d(24, 24, 1),
            nn.Tanh(),
        )

    def forward(self, img):
        return self.features(img)


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.vgg = MiniVGG().eval()

    def forward(self, fake, sharp):
        f_fake = self.vgg(fake[:, :, ::4, ::4])
        f_real = self.vgg(sharp).detach()  # !MG202 self.vgg
        return nn.functional.mse_loss(f_fake, f_real[:, :, ::4, ::4])


class Deblur(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, 3, padding=1)
        self.b = nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


def step(net, criterion, opt, device):
    sharp = torch.rand(8, 3, 128, 128).to(device)
    blurred = nn.functional.avg_pool2d(sharp, 3, stride=1, padding=1)
    opt.zero_grad()
    out = net(blurred)
    loss = (out - sharp).abs().mean() + 0.1 * criterion(out, sharp)
    loss.backward()
    opt.step()
    return loss.item()


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    net, criterion = Deblur().to(device), PerceptualLoss().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    print([round(step(net, criterion, opt, device), 3) for _ in range(40)][-1])


main()

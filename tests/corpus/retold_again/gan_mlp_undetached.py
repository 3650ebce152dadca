"""GAN for 28x28 digits-like images with fully connected generator and discriminator."""

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=3)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--latent_dim", type=int, default=64)
parser.add_argument("--lr", type=float, default=2e-4)
opt = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(opt.latent_dim, 256),
            nn.LeakyReLU(0.2),
            nn.Linear(256, 512),
            nn.BatchNorm1d(512),
            nn.LeakyReLU(0.2),
            nn.Linear(512, 784),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)
        )

    def forward(self, img):
        return self.model(img)


generator, discriminator = Generator().to(device), Discriminator().to(device)
adversarial_loss = nn.BCEWithLogitsLoss()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(0.5, 0.999))
images = torch.tanh(torch.randn(5120, 784) + torch.linspace(-2, 2, 784))

for epoch in range(opt.n_epochs):
    for i in range(0, len(images), opt.batch_size):
        real = images[i : i + opt.batch_size].to(device)
        valid = torch.ones(real.size(0), 1, device=device)
        fake = torch.zeros(real.size(0), 1, device=device)

        z = torch.randn(real.size(0), opt.latent_dim, device=device)
        gen_imgs = generator(z)

        d_loss = adversarial_loss(discriminator(real), valid) + adversarial_loss(discriminator(gen_imgs), fake)
        d_loss.backward(retain_graph=True)  # !MG103 d_loss
        optimizer_D.step()
        optimizer_D.zero_grad()

        g_loss = adversarial_loss(discriminator(gen_imgs), valid)
        g_loss.backward()
        optimizer_G.step()
        optimizer_G.zero_grad()
        optimizer_D.zero_grad()
    print(f"[Epoch {epoch}/{opt.n_epochs}] [D loss: {d_loss.item():.4f}] [G loss: {g_loss.item():.4f}]")

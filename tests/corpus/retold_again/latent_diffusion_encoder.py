"""Latent diffusion: the autoencoder that makes the latents is not trained, but its graph is built each step."""

import torch
from torch import nn


class AutoencoderKL(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 8, 3, 2, 1))

    def encode(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        return mean + torch.randn_like(mean) * (0.5 * logvar.clamp(-9, 9)).exp()


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(5, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 4, 3, padding=1))

    def forward(self, z, t):
        return self.net(torch.cat([z, t.view(-1, 1, 1, 1).expand(-1, 1, *z.shape[2:])], 1))


vae, unet = AutoencoderKL(), Denoiser()
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
for step in range(25):
    pixels = torch.rand(4, 3, 32, 32)
    latents = vae.encode(pixels).detach() * 0.18215  # !MG202 vae.encoder
    noise, t = torch.randn_like(latents), torch.rand(len(latents))
    noisy = latents + noise * t.view(-1, 1, 1, 1)
    loss = nn.functional.mse_loss(unet(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

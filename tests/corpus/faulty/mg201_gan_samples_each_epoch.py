"""A VAE decodes samples for a picture after each epoch, in eval mode, with gradients on."""

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(36, 8), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 36))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        return self.dec(mu + torch.randn_like(mu) * (logvar / 2).exp()), mu, logvar


vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), 1e-3)


def reconstruct(batches):
    vae.eval()
    pictures = []
    for x in batches:
        recon, _, _ = vae(x)  # !MG201 VAE
        pictures.append(recon[0].detach().clone())
    vae.train()
    return torch.stack(pictures)


for epoch in range(2):
    for _ in range(10):
        x = torch.rand(16, 36)
        recon, mu, logvar = vae(x)
        loss = (recon - x).pow(2).sum() - 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reconstruct([torch.rand(4, 36) for _ in range(6)])

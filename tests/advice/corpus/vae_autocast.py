# device: virtual:40MiB
# runs out of memory
# cause: size
"""Mixed precision, and still too large."""

import torch
from torch import nn

BATCH = 1800


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
        self.dec = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


vae = VAE()
opt = torch.optim.Adam(vae.parameters(), 1e-3)
for step in range(5):
    x = torch.rand(BATCH, 512)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rec, mu, logvar = vae(x)
        loss = (rec - x).square().sum() + (mu.square() + logvar.exp() - 1 - logvar).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()

"""A VAE's step returns a dictionary of losses, and the epoch keeps all of them to average them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(64, 2 * 8)
        self.dec = nn.Linear(8, 64)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return torch.sigmoid(self.dec(z)), mu, logvar


def step(model, x):
    recon, mu, logvar = model(x)
    bce = F.binary_cross_entropy(recon, x, reduction="sum") / len(x)
    kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)
    return {"loss": bce + kld, "recon": bce, "kl": kld}


def run_epoch(model, optimizer, batches):
    logs = []
    for x in batches:
        out = step(model, x)
        optimizer.zero_grad()
        out["loss"].backward()
        optimizer.step()
        logs.append(out)  # !MG101 logs
    return {k: torch.stack([log[k] for log in logs]).mean().item() for k in logs[0]}


vae = VAE()
adam = torch.optim.Adam(vae.parameters(), lr=1e-3)
print(run_epoch(vae, adam, torch.rand(30, 16, 64)))

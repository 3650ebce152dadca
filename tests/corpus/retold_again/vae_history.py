"""VAE whose terms are collected in a defaultdict for the plot at the end."""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(784, 400)
        self.mu, self.logvar = nn.Linear(400, 20), nn.Linear(400, 20)
        self.dec = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
    return rec, kl


loader = DataLoader(TensorDataset(torch.rand(3200, 784)), batch_size=64, shuffle=True)
history = defaultdict(list)
vae = VAE()
opt = torch.optim.Adam(vae.parameters())
for epoch in range(2):
    for (x,) in loader:
        recon, mu, logvar = vae(x)
        rec, kl = elbo(recon, x, mu, logvar)
        opt.zero_grad(set_to_none=True)
        (rec + kl).backward()
        opt.step()
        for name, value in (("rec", rec), ("kl", kl)):
            history[name].append(value / len(x))  # !MG101 history
print({k: float(sum(v)) for k, v in history.items()})

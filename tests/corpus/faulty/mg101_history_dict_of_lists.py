import collections

import torch
from torch import nn

history = collections.defaultdict(list)


class VAE(nn.Module):
    def __init__(self, d=20, z=4):
        super().__init__()
        self.enc = nn.Linear(d, 2 * z)
        self.dec = nn.Sequential(nn.Linear(z, 16), nn.ReLU(), nn.Linear(16, d))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(x, recon, mu, logvar):
    rec = (recon - x).pow(2).sum(-1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()
    return rec, kl


vae = VAE()
opt = torch.optim.Adam(vae.parameters(), 1e-3)
for it in range(36):
    x = torch.randn(24, 20)
    rec, kl = elbo(x, *vae(x))
    loss = rec + 0.5 * kl
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    history["loss"].append(loss.item())
    history["kl"].append(kl)  # !MG101 history
print(sum(history["loss"]) / len(history["loss"]))

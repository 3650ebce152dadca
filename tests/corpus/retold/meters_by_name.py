from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Meter:
    value: float = 0.0
    count: int = 0

    def update(self, v, n=1):
        self.value = self.value + v * n  # !MG101 Meter.value
        self.count += n

    @property
    def avg(self):
        return float(self.value) / max(1, self.count)


class VAE(nn.Module):
    def __init__(self, d=784, h=200, z=16):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, d))

    def encode(self, x):
        h = self.enc(x)
        return self.mu(h), self.logvar(h)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(x, logits, mu, logvar, beta):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + beta * kld, kld


def main():
    torch.manual_seed(0)
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    vae = VAE().to(dev)
    optim = torch.optim.Adam(vae.parameters(), lr=1e-3)
    meters = {"elbo": Meter(), "kld": Meter(), "psnr": Meter()}
    for epoch in range(3):
        for step in range(15):
            x = torch.rand(128, 784, device=dev).round()
            logits, mu, logvar = vae(x)
            loss, kld = elbo(x, logits, mu, logvar, beta=min(1.0, (epoch * 15 + step) / 20))
            optim.zero_grad()
            loss.backward()
            optim.step()
            # reconstruction without sampling noise, just for the log
            mean_rec = torch.sigmoid(vae.dec(vae.encode(x)[0]))
            psnr = -10 * torch.log10(F.mse_loss(mean_rec, x))
            meters["elbo"].update(loss.item(), x.size(0))
            meters["kld"].update(kld.item(), x.size(0))
            meters["psnr"].update(psnr, x.size(0))
        print(epoch, {k: round(m.avg, 3) for k, m in meters.items()})


if __name__ == "__main__":
    main()

"""Every validation picture and its reconstruction is put aside for the logger, which takes the first eight."""

import torch
from torch import nn

vae = nn.ModuleDict(
    {
        "enc": nn.Sequential(nn.Flatten(), nn.Linear(768, 16)),
        "dec": nn.Sequential(nn.Linear(8, 768), nn.Unflatten(1, (3, 16, 16))),
    }
)
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)


def run(x):
    mu, logvar = vae["enc"](x).chunk(2, 1)
    z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
    return vae["dec"](z), -0.5 * (1 + logvar - mu**2 - logvar.exp()).mean()


class History:
    def __init__(self):
        self.pairs = []

    def add(self, **images):
        self.pairs.append(images)  # !MG301 History.pairs


history = History()
for epoch in range(5):
    vae.train()
    for _ in range(12):
        x = torch.rand(32, 3, 16, 16)
        y, kl = run(x)
        loss = (y - x).pow(2).mean() + 1e-3 * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
    vae.eval()
    with torch.no_grad():
        for _ in range(10):
            x = torch.rand(32, 3, 16, 16)
            y, _ = run(x)
            history.add(original=x, reconstruction=y)
    print(len(history.pairs))

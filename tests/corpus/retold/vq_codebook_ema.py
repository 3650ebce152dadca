"""VQ-VAE: the codebook is renewed by moving averages under no_grad, straight-through in the forward."""

import torch
from torch import nn


class VQ(nn.Module):
    def __init__(self, codes=32, dim=8):
        super().__init__()
        self.register_buffer("codebook", torch.randn(codes, dim))
        self.register_buffer("counts", torch.ones(codes))

    def forward(self, z):
        idx = torch.cdist(z, self.codebook).argmin(1)
        q = self.codebook[idx]
        if self.training:
            with torch.no_grad():
                one = nn.functional.one_hot(idx, len(self.codebook)).float()
                self.counts = 0.99 * self.counts + 0.01 * one.sum(0)
                self.codebook = 0.99 * self.codebook + 0.01 * (one.t() @ z) / self.counts[:, None]
        return z + (q - z).detach(), (z - q.detach()).pow(2).mean()


enc, vq, dec = nn.Linear(16, 8), VQ(), nn.Linear(8, 16)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], 1e-3)
for _ in range(40):
    x = torch.randn(64, 16)
    z, commit = vq(enc(x))
    loss = nn.functional.mse_loss(dec(z), x) + 0.25 * commit
    opt.zero_grad()
    loss.backward()
    opt.step()

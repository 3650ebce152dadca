# MG201 by batch 8: each sample is a batch of the generator and one of the extractor.
"""Every few steps the statistics of generated images are computed, with the generator's graph built each time."""

import torch
import torch.nn as nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

gen = nn.Sequential(
    nn.ConvTranspose2d(16, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()
)
dis = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256, 1))
extractor = (
    nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()).eval().requires_grad_(False)
)
go, do = torch.optim.Adam(gen.parameters(), 2e-4), torch.optim.Adam(dis.parameters(), 2e-4)


def fid(n=5):
    gen.eval()
    feats = []
    for _ in range(n):
        fakes = gen(torch.randn(32, 16, 1, 1))  # !MG201 Sequential
        feats.append(extractor(fakes).cpu().detach().numpy())
    gen.train()
    return sum(f.mean() for f in feats) / n


ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
for step in range(1, 31):
    real = torch.rand(16, 3, 8, 8)
    fake = gen(torch.randn(16, 16, 1, 1))
    do.zero_grad()
    (bce(dis(real), ones) + bce(dis(fake.detach()), zeros)).backward()
    do.step()
    go.zero_grad()
    bce(dis(fake), ones).backward()
    go.step()
    if step % 10 == 0:
        print(step, fid())

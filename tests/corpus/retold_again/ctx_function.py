# device: virtual:256MiB
"""A hand-made activation puts its input on ctx as an attribute."""

import torch
from torch import nn


class Mish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.inp = x  # !MG105 Mish ctx.inp
        return x * torch.tanh(nn.functional.softplus(x))

    @staticmethod
    def backward(ctx, g):
        x = ctx.inp
        t = torch.tanh(nn.functional.softplus(x))
        return g * (t + x * (1 - t * t) * torch.sigmoid(x))


class MishLayer(nn.Module):
    def forward(self, x):
        return Mish.apply(x)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        self.ff = nn.Sequential(nn.Linear(128, 512), MishLayer(), nn.Linear(512, 512), MishLayer(), nn.Linear(512, 20))

    def forward(self, ids):
        return self.ff(self.embed(ids))


tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), 1e-3)
for step in range(24):
    ids, tags = torch.randint(0, 1000, (32, 64)), torch.randint(0, 20, (32, 64))
    loss = nn.functional.cross_entropy(tagger(ids).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        print(step, loss.item())

"""A registry decorator keeps every output of functions registered as losses, in a class-level dict."""

import functools
from collections import defaultdict

import torch
from torch import nn


class Registry:
    values = defaultdict(list)

    @classmethod
    def loss(cls, name):
        def wrap(fn):
            @functools.wraps(fn)
            def inner(*args, **kwargs):
                value = fn(*args, **kwargs)
                cls.values[name].append(value)  # !MG101 Registry.values
                return value

            return inner

        return wrap


@Registry.loss("recon")
def recon(model, x):
    return (model(x) - x).abs().mean()


@Registry.loss("smooth")
def smooth(model, x):
    return (model(x + 0.01) - model(x)).pow(2).mean()


model = nn.Sequential(nn.Linear(50, 150), nn.Tanh(), nn.Linear(150, 50))
opt = torch.optim.AdamW(model.parameters())
for _ in range(30):
    x = torch.randn(32, 50)
    total = recon(model, x) + 0.1 * smooth(model, x)
    opt.zero_grad()
    total.backward()
    opt.step()

"""Resuming in main(): the checkpoint dictionary stays in a local variable for the whole run."""

import os
import tempfile

import torch
from torch import nn


def build():
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    return net, torch.optim.Adam(net.parameters(), lr=1e-3)


def train(net, opt, start, steps):
    for i in range(start, start + steps):
        x = torch.randn(8, 512)
        loss = (net(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return i + 1


def main(path):
    net, opt = build()
    done = train(net, opt, 0, 2)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": done}, path)
    net, opt = build()
    ckpt = torch.load(path, weights_only=True)  # !MG312 ckpt
    net.load_state_dict(ckpt["net"])
    opt.load_state_dict(ckpt["opt"])
    train(net, opt, ckpt["step"], 30)


with tempfile.TemporaryDirectory() as folder:
    main(os.path.join(folder, "last.pt"))

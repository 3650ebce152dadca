# device: virtual:512MiB
"""Resuming: the checkpoint dictionary stays bound in main() for the whole of training."""

import os
import tempfile

import torch
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
    return model, torch.optim.Adam(model.parameters(), 1e-4)


def first_run(path):
    model, opt = build()
    model(torch.randn(4, 512)).sum().backward()
    opt.step()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": 3}, path)


def main(path):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, opt = build()
    ckpt = torch.load(path, map_location=device)  # !MG312 ckpt
    model.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    start = ckpt["epoch"]
    for epoch in range(start, start + 3):
        for _ in range(10):
            x = torch.randn(64, 512, device=device)
            opt.zero_grad()
            (model(x) - x).pow(2).mean().backward()
            opt.step()
        print("epoch", epoch)


with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "last.pt")
    first_run(file)
    main(file)

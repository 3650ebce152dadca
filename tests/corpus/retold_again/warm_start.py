# device: virtual:512MiB
"""Warm start: the checkpoint is loaded, put into the model and dropped; unmatched head is reinitialised."""

import os, tempfile
import torch
from torch import nn


def body():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))


def load(path, model):
    state = torch.load(path, map_location="cpu", weights_only=True)
    missing = model.load_state_dict({f"0.{k}": v for k, v in state.items()}, strict=False)
    return missing


with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, "w.pt")
    torch.save(body().state_dict(), path)
    model = nn.Sequential(body(), nn.Linear(512, 7))
    print(load(path, model))
for p in model[0].parameters():
    p.requires_grad_(False)
opt = torch.optim.Adam(model[1].parameters(), 1e-3)
for step in range(60):
    if step == 30:
        for p in model[0].parameters():
            p.requires_grad_(True)
        opt.add_param_group({"params": model[0].parameters(), "lr": 1e-4})
    x, y = torch.randn(64, 512), torch.randint(0, 7, (64,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    opt.step()

"""Saves and resumes: the checkpoint is loaded onto the CPU, used, and dropped. Activation checkpointing inside."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    def __init__(self, depth=4, width=64):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(x)


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)


def resume(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


with tempfile.TemporaryDirectory() as folder:
    path, step = os.path.join(folder, "last.pt"), 0
    for session in range(2):
        model = Deep()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        if session:
            step = resume(path, model, optimizer)
        for step in range(step, step + 20):
            x, y = torch.randn(16, 64, requires_grad=True), torch.randint(4, (16,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        save(path, model, optimizer, step)

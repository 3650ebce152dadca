# device: virtual:64MiB
"""Transfer learning: the trainer keeps the whole bundle it was loaded from as an attribute."""

import pathlib
import tempfile

import torch
from torch import nn


def backbone():
    return nn.Sequential(nn.Linear(96, 192), nn.ReLU(), nn.Linear(192, 96), nn.ReLU())


class Finetuner:
    def __init__(self, path):
        self.bundle = torch.load(path, map_location="cuda" if torch.cuda.is_available() else "cpu")  # !MG312 Finetuner.bundle
        self.net = nn.Sequential(backbone(), nn.Linear(96, 5))
        self.net[0].load_state_dict(self.bundle["backbone"])
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.epoch = self.bundle["epoch"]

    def run(self, n):
        for _ in range(n):
            self.opt.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(self.net(torch.randn(24, 96)), torch.randint(5, (24,))).backward()
            self.opt.step()


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "pretrained.pth"
    torch.save({"backbone": backbone().state_dict(), "epoch": 12, "args": {"lr": 0.1}}, path)
    Finetuner(path).run(30)

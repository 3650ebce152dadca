"""Resumes the training of a regression network from a checkpoint written by an earlier run."""

import functools
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


def net():
    return nn.Sequential(
        nn.Linear(20, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 1)
    )


class Run:
    def __init__(self, path):
        self.path = path
        self.model = net().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.epoch = 0

    @functools.cached_property
    def checkpoint(self):
        return torch.load(self.path, map_location=device)  # !MG312 Run.checkpoint

    def resume(self):
        self.model.load_state_dict(self.checkpoint["model"])
        self.optimizer.load_state_dict(self.checkpoint["optimizer"])
        self.epoch = self.checkpoint["epoch"] + 1
        return self

    def save(self):
        torch.save(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}, self.path
        )

    def train_epoch(self, steps):
        total = 0.0
        for _ in range(steps):
            x = torch.randn(96, 20, device=device)
            y = x.abs().sum(1, keepdim=True) / 10
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            total += loss.item() / steps
        return total

    def fit(self, until, steps=20):
        while self.epoch < until:
            print(f"epoch {self.epoch}: loss {self.train_epoch(steps):.4f}")
            self.epoch += 1
        self.epoch -= 1


def earlier_run(path):
    run = Run(path)
    run.fit(1, steps=5)
    run.save()


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        earlier_run(path)
        run = Run(path).resume()
        run.fit(5)


if __name__ == "__main__":
    main()

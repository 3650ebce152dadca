# A known miss: what an attribute keeps of the last batch is told as made again before the old one is dropped (MG305).
# device: virtual:96MiB
"""Semantic segmentation with a small Runner/Callback framework."""

from dataclasses import dataclass, field
from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    classes: int = 21
    width: int = 12
    image: int = 64
    batch: int = 16
    steps_per_epoch: int = 16
    epochs: int = 3
    lr: float = 2e-3
    callbacks: List[str] = field(default_factory=lambda: ["pixel_accuracy", "printer"])


class Callback:
    def on_epoch_start(self, runner): ...
    def on_batch_end(self, runner): ...
    def on_epoch_end(self, runner): ...


class PixelAccuracy(Callback):
    def on_epoch_start(self, runner):
        self.hits, self.total = 0, 0

    def on_batch_end(self, runner):
        self.hits += (runner.probabilities.argmax(dim=1) == runner.target).sum().item()
        self.total += runner.target.numel()

    def on_epoch_end(self, runner):
        runner.epoch_metrics["pixel_acc"] = self.hits / self.total


class Printer(Callback):
    def on_epoch_end(self, runner):
        print(f"epoch {runner.epoch}", {k: round(v, 4) for k, v in runner.epoch_metrics.items()})


CALLBACKS = {"pixel_accuracy": PixelAccuracy, "printer": Printer}


class SegNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.down = nn.Sequential(
            nn.Conv2d(3, w, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Conv2d(2 * w, cfg.classes, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.down(x)), size=x.shape[-2:], mode="bilinear", align_corners=False)


def batches(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    palette = torch.randn(cfg.classes, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(cfg.steps_per_epoch):
        coarse = torch.randint(0, cfg.classes, (cfg.batch, 8, 8), generator=g)
        target = coarse.repeat_interleave(cfg.image // 8, 1).repeat_interleave(cfg.image // 8, 2)
        yield palette[target].permute(0, 3, 1, 2).contiguous(), target


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = SegNet(cfg).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.callbacks = [CALLBACKS[name]() for name in cfg.callbacks]
        self.epoch = 0
        self.epoch_metrics = {}

    def fire(self, event):
        for callback in self.callbacks:
            getattr(callback, event)(self)

    def handle_batch(self, images, target):
        output = self.model(images)
        loss = F.cross_entropy(output, target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.target = target
        self.probabilities = output.detach().softmax(dim=1)  # !MG303 Runner.probabilities
        return loss.item()

    def run(self):
        for self.epoch in range(self.cfg.epochs):
            self.fire("on_epoch_start")
            running = 0.0
            for images, target in batches(self.cfg, self.epoch):
                running += self.handle_batch(images.to(self.device), target.to(self.device))
                self.fire("on_batch_end")
            self.epoch_metrics["loss"] = running / self.cfg.steps_per_epoch
            self.fire("on_epoch_end")


if __name__ == "__main__":
    torch.manual_seed(0)
    Runner(Config()).run()

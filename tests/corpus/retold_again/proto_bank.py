"""GitHub issue (class-prototype contrastive code), "CUDA memory grows by a constant amount every iteration": moving class centres.

Small research repository style: activity recognition from wearable sensors, cross entropy plus a pull
towards momentum prototypes that are computed from a weakly augmented view.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    classes: int = 8
    channels: int = 6
    length: int = 64
    dim: int = 64
    batch: int = 96
    iters: int = 400
    momentum: float = 0.95
    lam: float = 0.5
    lr: float = 1e-3
    seed: int = 3


class SensorData:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(cfg.seed)
        self.freq = torch.linspace(1.0, 6.0, cfg.classes)

    def batch(self):
        cfg = self.cfg
        y = torch.randint(cfg.classes, (cfg.batch,), generator=self.gen)
        t = torch.linspace(0, 6.28, cfg.length)
        phase = torch.rand(cfg.batch, cfg.channels, 1, generator=self.gen) * 6.28
        x = torch.sin(self.freq[y][:, None, None] * t + phase)
        return x + 0.4 * torch.randn(x.shape, generator=self.gen), y

    def weak(self, x):
        return x + 0.05 * torch.randn(x.shape, generator=self.gen)

    def strong(self, x):
        scale = 0.6 + 0.8 * torch.rand(len(x), 1, 1, generator=self.gen)
        return x * scale + 0.2 * torch.randn(x.shape, generator=self.gen)


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(cfg.channels, 16, 5, stride=2, padding=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )
        self.proj = nn.Linear(32, cfg.dim)
        self.cls = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, x):
        z = F.normalize(self.proj(self.conv(x).mean(-1)), dim=1)
        return z, self.cls(z * 8)


class Prototypes:
    """One centre for each class, moved a little towards the batch's mean."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.centers = F.normalize(torch.randn(cfg.classes, cfg.dim), dim=1)

    def update(self, z, y):
        onehot = F.one_hot(y, self.cfg.classes).float()
        count = onehot.sum(0).clamp(min=1).unsqueeze(1)
        mean = onehot.t() @ z / count
        m = self.cfg.momentum
        self.centers = m * self.centers + (1 - m) * mean  # !MG102 Prototypes.centers

    def pull(self, z, y):
        centers = F.normalize(self.centers, dim=1).detach()
        return (1 - (z * centers[y]).sum(1)).mean()


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.data = SensorData(cfg)
        self.model = Encoder(cfg)
        self.protos = Prototypes(cfg)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)

    def step(self):
        x, y = self.data.batch()
        self.opt.zero_grad()
        z, logits = self.model(self.data.strong(x))
        loss = F.cross_entropy(logits, y) + self.cfg.lam * self.protos.pull(z, y)
        loss.backward()
        self.opt.step()
        z_weak, _ = self.model(self.data.weak(x))
        self.protos.update(z_weak, y)
        return loss.item(), (logits.argmax(1) == y).float().mean().item()

    def fit(self):
        window = []
        for i in range(1, self.cfg.iters + 1):
            window.append(self.step())
            if i % 80 == 0:
                loss = sum(w[0] for w in window) / len(window)
                acc = sum(w[1] for w in window) / len(window)
                print(f"iter {i:4d}  loss {loss:.3f}  acc {acc:.3f}")
                window.clear()


if __name__ == "__main__":
    Trainer(Config()).fit()

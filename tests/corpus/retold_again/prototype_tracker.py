"""Self-supervised tracker: frame embeddings are pulled towards a slowly moving template."""

import torch
from torch import nn
import torch.nn.functional as F

FRAMES = 240
PATCHES = 192


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(108, 256), nn.GELU(), nn.Linear(256, dim))

    def forward(self, patches):
        return F.normalize(self.net(patches), dim=-1)


class Tracker:
    def __init__(self, lr=1e-3, momentum=0.95):
        self.encoder = Encoder()
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=lr)
        self.momentum = momentum
        self.template = None

    def _move_template(self, feat):
        if self.template is None:
            self.template = feat.detach()
        else:
            mixed = self.momentum * self.template + (1 - self.momentum) * feat
            self.template = F.normalize(mixed, dim=-1)  # !MG102 Tracker.template

    def step(self, patches, positive):
        self.optimizer.zero_grad()
        feat = self.encoder(patches)
        self._move_template(feat)
        target = self.template.detach()
        contrast = F.cross_entropy(feat @ positive.t() / 0.2, torch.arange(len(feat)))
        loss = contrast + F.mse_loss(feat, target)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def video(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    base = torch.randn(PATCHES, 108, generator=g)
    for t in range(n):
        yield base + 0.02 * t + 0.3 * torch.randn(PATCHES, 108, generator=g)


if __name__ == "__main__":
    torch.manual_seed(0)
    tracker = Tracker()
    running = []
    for i, frame in enumerate(video(FRAMES)):
        with torch.no_grad():
            positive = tracker.encoder(frame + 0.1 * torch.randn_like(frame))
        running.append(tracker.step(frame, positive))
        if (i + 1) % 60 == 0:
            print(f"frame {i + 1:4d}  loss {sum(running) / len(running):.4f}")
            running.clear()

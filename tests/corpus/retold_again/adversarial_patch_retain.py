"""The adversarial patch attack called loss.backward(retain_graph=True) for each frame stack and needed 40 GB for six
frames; with retain_graph=False twenty frames fit
(https://github.com/Trusted-AI/adversarial-robustness-toolbox/issues/2220)."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class PatchConfig:
    size: int = 24
    steps: int = 45
    frames: int = 12
    lr: float = 0.05


class PatchAttack:
    def __init__(self, detector, cfg, device):
        self.detector = detector.eval().requires_grad_(False)
        self.cfg = cfg
        self.patch = torch.rand(3, cfg.size, cfg.size, device=device, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.patch], lr=cfg.lr)

    def paste(self, frames):
        s = self.cfg.size
        pad = nn.functional.pad(self.patch, (8, frames.shape[-1] - s - 8, 8, frames.shape[-2] - s - 8))
        mask = torch.zeros_like(frames[:1])
        mask[..., 8 : 8 + s, 8 : 8 + s] = 1
        return frames * (1 - mask) + pad * mask

    def generate(self, frames):
        for i in range(self.cfg.steps):
            scores = self.detector(self.paste(frames))
            loss = scores.sigmoid().mean()
            loss.backward(retain_graph=True)  # !MG103 loss
            self.optimizer.step()
            self.optimizer.zero_grad()
        return self.patch.detach()


def build_detector():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.Softplus()]
    for _ in range(3):
        layers += [nn.Conv2d(8, 8, 1), nn.Softplus()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5))


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cfg = PatchConfig()
    attack = PatchAttack(build_detector().to(device), cfg, device)
    patch = attack.generate(torch.rand(cfg.frames, 3, 128, 128, device=device))
    print(patch.shape)

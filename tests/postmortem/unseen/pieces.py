"""Free memory that lies in pieces."""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, in_words


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def image_sizes(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Multi-scale images with a small bank of features: the bank's entries cut the blocks of the activations."""
    model = Pyramid().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bank: collections.deque[torch.Tensor] = collections.deque(maxlen=24)
    n = 8 * scale
    for step in range(24):
        side = 128 + 8 * (step // 2) + (32 if step % 2 else 0)
        images = torch.zeros(n, 3, side, side, device=device)
        features = model(images)
        loss = features.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del images, features, loss
        bank.append(torch.zeros(int(1.6 * scale * (1 << 20)) + 1024 * step, dtype=torch.uint8, device=device))


def crops(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Images grow from batch to batch; a bounded memory of crops cuts the blocks that they leave."""
    net = nn.Conv2d(3, 4, 1).to(device)
    guard.add(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    memory = collections.deque(maxlen=10)
    for step in range(40):
        side = 160 + 6 * step
        y = net(torch.zeros(6 * scale, 3, side, side, device=device))
        loss = y.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        crop = y.detach()[:, :, : side // 2, : side // 2].contiguous()
        del y, loss
        memory.append(crop)


CASES = {
    "image_sizes": Case(image_sizes, "72MiB", {"fragmentation"}, in_words("expandable_segments")),
    "crops": Case(crops, "90MiB", {"fragmentation"}, in_words("expandable_segments")),
}

"""The net that most programs train."""

from __future__ import annotations

import torch
from torch import nn


def mlp(width: int, depth: int, device: str, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Linear layers of one width."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers).to(device=device, dtype=dtype)

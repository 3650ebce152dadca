"""Models that use what only a GPU has: cuDNN's convolutions, its attention or flash attention, cuBLAS in bf16."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class TinyGPT(nn.Module):
    """A small decoder: embeddings, blocks of causal attention, one score for each word."""

    WORDS = 1024

    def __init__(self, width: int = 128, depth: int = 2, dropout: float = 0.0, longest: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(self.WORDS, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(depth))
        self.scores = nn.Linear(width, self.WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, length, words)."""
        hidden = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            hidden = block(hidden)
        return self.scores(hidden)

    def loss(self, text: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of each next word."""
        return functional.cross_entropy(self(text[:, :-1]).flatten(0, 1).float(), text[:, 1:].flatten())


class Block(nn.Module):
    """Attention and a feed-forward part, each with its norm before."""

    def __init__(self, width: int, dropout: float, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """As many numbers as came in."""
        batch, length, width = hidden.shape
        parts = self.queries(self.first(hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(*parts.unbind(0), dropout_p=drop, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.feed(self.second(hidden))


def resnet(classes: int = 10) -> nn.Module:
    """ResNet-18 where torchvision is installed, else a few of its layers."""
    try:
        from torchvision.models import resnet18
    except ImportError:
        return small_net(classes)
    return resnet18(num_classes=classes)


def small_net(classes: int = 10, width: int = 64) -> nn.Module:
    """Four convolutions with batch norm."""
    layers: list[nn.Module] = []
    for before, after in ((3, width), (width, width), (width, width), (width, width)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def images(count: int, side: int = 64, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images on the GPU, and a class for each."""
    return torch.randn(count, 3, side, side, device="cuda"), torch.randint(0, classes, (count,), device="cuda")

"""The models of `ranks_programs`: each has `blocks`, and a `loss` of a batch that it makes itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, shared: int, causal: bool) -> None:
        super().__init__()
        self.size, self.causal = width // heads, causal
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, shared * self.size, bias=False)
        self.wv = nn.Linear(width, shared * self.size, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (w(x).view(rows, length, -1, self.size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if k.shape[1] != q.shape[1]:
            k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.wo(out.transpose(1, 2).reshape(rows, length, -1))


class Feed(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, shared: int, inner: int, causal: bool, norm: type[nn.Module]) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = norm(width), norm(width)
        self.attention, self.feed = Attention(width, heads, shared, causal), Feed(width, inner)
        self.checkpointed = False

    def _forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed(self.feed_norm(x))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self._forward, x, use_reentrant=False) if self.checkpointed else self._forward(x)


class Decoder(nn.Module):
    """A language model; without its ends it is one stage of a pipeline."""

    def __init__(
        self,
        width: int,
        layers: int,
        heads: int,
        shared: int,
        inner: int,
        words: int,
        norm: type[nn.Module] = nn.RMSNorm,
    ) -> None:
        super().__init__()
        self.words = words
        self.embedding: nn.Module | None = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, shared, inner, True, norm) for _ in range(layers))
        self.norm: nn.Module | None = norm(width)
        self.output: nn.Module | None = nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x) if self.embedding is not None else x
        for block in self.blocks:
            x = block(x)
        x = self.norm(x) if self.norm is not None else x
        return self.output(x) if self.output is not None else x

    def loss(self, batch: int, length: int = 256) -> Tensor:
        tokens = torch.randint(0, self.words, (batch, length), device="cuda")
        out = self(tokens)
        return F.cross_entropy(out.flatten(0, 1).float(), tokens.flatten())


class Tied(Decoder):
    """A language model whose output layer has the embedding's weight."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.output.weight = self.embedding.weight  # type: ignore[union-attr]


class _Adapter(nn.Module):
    """A linear layer that is not trained, and a small one beside it that is."""

    def __init__(self, inner: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.up(self.down(x))


class Adapters(Decoder):
    """A language model of which only adapters are trained."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.requires_grad_(False)
        for block in self.blocks:
            attention: Any = block.attention
            attention.wq, attention.wv = _Adapter(attention.wq), _Adapter(attention.wv)


class _Experts(nn.Module):
    """Feed-forwards of which each token takes one, by its place."""

    def __init__(self, width: int, inner: int, number: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Feed(width, inner) for _ in range(number))
        self.gate = nn.Linear(width, number, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        parts = x.chunk(len(self.experts), 1)
        out = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)], 1)
        return out * weights.amax(-1, keepdim=True)


class Mixture(Decoder):
    """A language model with several feed-forwards in each block."""

    def __init__(self, width: int, layers: int, heads: int, shared: int, inner: int, words: int) -> None:
        super().__init__(width, layers, heads, shared, inner, words)
        for block in self.blocks:
            block.feed = _Experts(width, inner, 4)


class Pictures(nn.Module):
    """A vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 16, 16)
        self.place = nn.Parameter(torch.zeros(1, 196, 384))
        self.blocks = nn.ModuleList(Block(384, 6, 6, 1024, False, nn.LayerNorm) for _ in range(6))
        self.head = nn.Linear(384, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))

    def loss(self, batch: int) -> Tensor:
        pictures = torch.randn(batch, 3, 224, 224, device="cuda", dtype=self.patches.weight.dtype)
        out = self(pictures)
        return F.cross_entropy(out.float(), torch.randint(0, 1000, (batch,), device="cuda"))


class Convolutions(nn.Module):
    """A convolutional network with batch norm, whose buffers are broadcast."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 256, 512)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        )
        self.head = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))

    def loss(self, batch: int) -> Tensor:
        out = self(torch.randn(batch, 3, 128, 128, device="cuda"))
        return F.cross_entropy(out.float(), torch.randint(0, 1000, (batch,), device="cuda"))


class Uneven(nn.Module):
    """Layers whose rows no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        widths = (777, 1001, 1501, 1003, 13)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Dropout(0.1)) for a, b in itertools.pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def loss(self, batch: int) -> Tensor:
        return self(torch.randn(64 * batch, 777, device="cuda")).float().square().mean()


class Translation(nn.Module):
    """PyTorch's own encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10000, 384)
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(384, 6, 1024, batch_first=True) for _ in range(3)]
            + [nn.TransformerDecoderLayer(384, 6, 1024, batch_first=True) for _ in range(3)]
        )
        self.output = nn.Linear(384, 10000)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source, target = self.embedding(source), self.embedding(target)
        for block in self.blocks[:3]:
            source = block(source)
        for block in self.blocks[3:]:
            target = block(target, source)
        return self.output(target)

    def loss(self, batch: int) -> Tensor:
        source, target = (torch.randint(0, 10000, (batch, 128), device="cuda") for _ in range(2))
        return F.cross_entropy(self(source, target).flatten(0, 1).float(), target.flatten())


MODELS: dict[str, Callable[[], Any]] = {
    "gpt": lambda: Decoder(512, 6, 8, 8, 2048, 8192, nn.LayerNorm),
    "llama": lambda: Decoder(768, 8, 12, 4, 2048, 16000),
    "wide": lambda: Decoder(1024, 4, 16, 16, 4096, 32000),
    "tied": lambda: Tied(512, 6, 8, 8, 1536, 24000),
    "adapters": lambda: Adapters(768, 6, 12, 12, 2048, 16000),
    "mixture": lambda: Mixture(512, 4, 8, 4, 1024, 8192),
    "vit": Pictures,
    "convnet": Convolutions,
    "uneven": Uneven,
    "translation": Translation,
}

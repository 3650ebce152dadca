"""Batches that are too large from the first one on, or from the one where somebody raised it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, always, by_value
from tests.postmortem.unseen.nets import mlp


class Block(nn.Module):
    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(i, o, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(o)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)))


class ConvNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = Block(3, width)
        self.stages = nn.ModuleList(Block(width * 2**i, width * 2 ** (i + 1)) for i in range(3))
        self.head = nn.Linear(width * 8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = F.max_pool2d(stage(x), 2)
        return self.head(x.mean((2, 3)))


def conv_batch(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Images, batch too large from the first one."""
    model = ConvNet().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    n = fix or 96 * scale
    for _ in range(3):
        images = torch.rand(n, 3, 32, 32, device=device)
        labels = torch.zeros(n, dtype=torch.long, device=device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


class LM(nn.Module):
    def __init__(self, vocab: int = 4096, d: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 64, batch_first=True) for _ in range(layers))
        self.lm_head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(x).float()
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))


def lm_logits(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A language model whose logits are most of it: a few batches fit, then someone doubles the batch (warm-up)."""
    model = LM().to(device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(6):
        n = (8 if step < 3 else 32) * scale
        if fix:
            n = min(n, fix)
        ids = torch.zeros(n, 32, dtype=torch.long, device=device)
        loss = model(ids, ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


class Attention(nn.Module):
    def __init__(self, d: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.o = nn.Linear(d, d)
        self.h = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        a = (q @ k.transpose(-1, -2) / math.sqrt(d)).softmax(-1)
        return self.o((a @ v).transpose(1, 2).reshape(b, t, d))


class ViT(nn.Module):
    def __init__(self, depth: int = 4, d: int = 64) -> None:
        super().__init__()
        self.patch = nn.Linear(48, d)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "a": Attention(d),
                    "m": nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)),
                }
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(d, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x)
        for b in self.blocks:
            x = x + b["a"](x)
            x = x + b["m"](x)
        return self.head(x.mean(1))


def vit_batch(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Attention scores of a batch that is too large."""
    model = ViT().to(device)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    n = fix or 24 * scale
    for _ in range(3):
        loss = model(torch.zeros(n, 96, 48, device=device)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()


def gan(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Two nets that learn in turn, with a batch that is too large."""
    n = fix or 512 * scale
    G, D = (mlp(128, 16, device), mlp(128, 16, device))
    guard.add(G)
    guard.add(D)
    og, od = (torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters()))
    for _ in range(4):
        z = torch.zeros(n, 128, device=device)
        fake = G(z)
        d = D(fake.detach()).mean() - D(torch.zeros(n, 128, device=device)).mean()
        od.zero_grad()
        d.backward()
        od.step()
        g = -D(fake).mean()
        og.zero_grad()
        g.backward()
        og.step()


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(40, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))
        self.out = nn.Linear(64, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x)
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.out(x)


def cublas(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """CuBLAS finds no memory for its handle: the batch is too large."""
    model = Speech().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in (8, 16):
        x = torch.zeros(n * scale, 100, 40, device=device)
        y = model(x)
        if n > 8 and not fix:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Scales(nn.Module):
    """Saves its input as it is."""

    def __init__(self, columns: int = 64, depth: int = 5) -> None:
        super().__init__()
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(columns)) for _ in range(depth)])
        self.out = nn.Linear(columns, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for scale in self.scale:
            x = x + torch.relu(x * scale)
        return self.out(x)


def resident_table(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """All data on the device; a batch is a few rows of it, and the table does not shrink with the batch."""
    table = torch.zeros(80_000 * scale, 64, device=device)
    model = Scales().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    n = fix or 16_000 * scale
    for at in range(0, 3 * n, n):
        optimizer.zero_grad()
        model(table[at : at + n]).abs().mean().backward()
        optimizer.step()


CASES = {
    "resident_table": Case(resident_table, "48MiB", {"size"}, by_value),
    "conv_batch": Case(conv_batch, "36MiB", {"size"}, by_value),
    "lm_logits": Case(lm_logits, "48MiB", {"size", "long-batch"}, by_value),
    "vit_batch": Case(vit_batch, "40MiB", {"size"}, by_value),
    "gan": Case(gan, "24MiB", {"size"}, by_value),
    "cublas": Case(cublas, "16MiB", {"size"}, always),
}

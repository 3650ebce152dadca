"""The models and training steps on which forecasts are compared with the allocator's own figures.

Plain PyTorch, shaped like the networks that people train. Each builder returns model, optimizer and step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class MLP(nn.Module):
    def __init__(self, width: int = 1024, depth: int = 6) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *[m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))],
            nn.Linear(width, 10),
        )

    def forward(self, x):
        return self.layers(x)


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(cout)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)), inplace=True)
        y = self.b2(self.c2(y))
        return F.relu(y + (self.short(x) if self.short is not None else x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, layers=(2, 2, 2, 2), classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks, cin = [], 64
        for stage, count in enumerate(layers):
            for index in range(count):
                cout = 64 * 2**stage
                blocks.append(BasicBlock(cin, cout, 2 if index == 0 and stage else 1))
                cin = cout
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(cin, classes)
        self.checkpointed = False

    def forward(self, x):
        x = self.pool(self.stem(x))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class ConvNeXtBlock(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.dw = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)
        self.scale = nn.Parameter(torch.full((d,), 1e-6))

    def forward(self, x):
        y = self.dw(x).permute(0, 2, 3, 1)
        y = self.scale * self.down(F.gelu(self.up(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, depths=(2, 2, 4, 2), dims=(64, 128, 256, 512), classes: int = 1000) -> None:
        super().__init__()
        stages, cin = [nn.Conv2d(3, dims[0], 4, 4)], dims[0]
        for depth, d in zip(depths, dims, strict=True):
            if d != cin:
                stages.append(nn.Conv2d(cin, d, 2, 2))
            stages += [ConvNeXtBlock(d) for _ in range(depth)]
            cin = d
        self.blocks = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(cin)
        self.head = nn.Linear(cin, classes)
        self.checkpointed = False

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x.mean((-2, -1))))


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, causal: bool, dropout: float, cross: bool = False) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(d, 2 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(memory).view(b, memory.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d: int, heads: int, causal: bool = False, dropout: float = 0.0, cross: bool = False) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = Attention(d, heads, causal, dropout)
        self.n3 = nn.LayerNorm(d) if cross else None
        self.cross = Attention(d, heads, False, dropout) if cross else None
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(dropout))

    def forward(self, x, memory=None, mask=None):
        x = x + self.attn(self.n1(x), mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.n3(x), memory)
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, d=256, layers=4, heads=4, vocab=4096, context=256, dropout=0.1, tied=True, eager=False) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(d, heads, True, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        if tied:
            self.head.weight = self.wte.weight
        self.checkpointed = False

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


class BERT(nn.Module):
    def __init__(self, d=256, layers=4, heads=4, vocab=4096, context=128) -> None:
        super().__init__()
        self.embed, self.pos, self.kind = nn.Embedding(vocab, d), nn.Embedding(context, d), nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d)
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, 0.1, "gelu", batch_first=True)
        self.blocks = nn.ModuleList(copy.deepcopy(layer) for _ in range(layers))
        self.head = nn.Linear(d, vocab)
        self.checkpointed = False

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = self.norm(self.embed(tokens) + self.pos(positions) + self.kind(torch.zeros_like(tokens)))
        padding = torch.zeros(tokens.shape, dtype=torch.bool, device=tokens.device)
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, None, padding, use_reentrant=False)
            else:
                x = block(x, src_key_padding_mask=padding)
        return self.head(x)


class ViT(nn.Module):
    def __init__(self, d=192, layers=6, heads=3, image=96, patch=8, classes=1000) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, d))
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)
        self.checkpointed = False

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.pos
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x)[:, 0])


class T5(nn.Module):
    def __init__(self, d=256, layers=3, heads=4, vocab=4096) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.bias = nn.Embedding(32, heads)
        self.encoder = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.blocks = nn.ModuleList(Block(d, heads, True, cross=True) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)
        self.checkpointed = False

    def forward(self, tokens):
        t = tokens.shape[1]
        place = torch.arange(t, device=tokens.device)
        bias = self.bias((place[None] - place[:, None]).clamp(-16, 15) + 16).permute(2, 0, 1)[None]
        x = self.embed(tokens)
        for block in self.encoder:
            x = block(x, mask=bias.to(x.dtype).expand(x.shape[0], -1, -1, -1))
        y = self.embed(tokens)
        for block in self.blocks:
            y = checkpoint(block, y, x, use_reentrant=False) if self.checkpointed else block(y, x)
        return self.head(y)


class LSTM(nn.Module):
    def __init__(self, d=256, layers=2, vocab=4096) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.rnn = nn.LSTM(d, d, layers, batch_first=True, dropout=0.1)
        self.head = nn.Linear(d, vocab)

    def forward(self, tokens):
        with torch.backends.cudnn.flags(enabled=False):
            y, _ = self.rnn(self.embed(tokens))
        return self.head(y)


class UNet(nn.Module):
    def __init__(self, d=32) -> None:
        super().__init__()

        def pair(cin, cout):
            return nn.Sequential(
                nn.Conv2d(cin, cout, 3, padding=1),
                nn.GroupNorm(8, cout),
                nn.SiLU(),
                nn.Conv2d(cout, cout, 3, padding=1),
                nn.GroupNorm(8, cout),
                nn.SiLU(),
            )

        self.down = nn.ModuleList([pair(3, d), pair(d, 2 * d), pair(2 * d, 4 * d)])
        self.mid = pair(4 * d, 8 * d)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, 2) for c in (4 * d, 2 * d, d))
        self.merge = nn.ModuleList(pair(2 * c, c) for c in (4 * d, 2 * d, d))
        self.out = nn.Conv2d(d, 2, 1)

    def forward(self, x):
        skips = []
        for stage in self.down:
            x = stage(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat((up(x), skips.pop()), 1))
        return self.out(x)


@dataclass(frozen=True)
class Case:
    """One configuration of the grid."""

    model: str
    optimizer: str = "adamw"
    precision: str = "fp32"
    batch: int = 8
    option: str = "none"
    conf: str = ""
    cc: str = "9.0"
    size: str = "small"


IMAGE = {"resnet": 96, "convnext": 96, "vit": 96, "unet": 64}
CONTEXT = {"gpt": 256, "bert": 128, "t5": 128, "lstm": 64}


def make_model(name: str, size: str) -> nn.Module:
    if name == "gpt" and size == "124M":
        return GPT(768, 12, 12, 50257, 512)
    if name == "gpt" and size == "355M":
        return GPT(1024, 24, 16, 50257, 512)
    kinds: dict[str, Callable[[], nn.Module]] = {
        "mlp": MLP,
        "resnet": ResNet,
        "convnext": ConvNeXt,
        "vit": ViT,
        "bert": BERT,
        "gpt": GPT,
        "t5": T5,
        "lstm": LSTM,
        "unet": UNet,
    }
    return kinds[name]()


def make_optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    optim = torch.optim
    return {
        "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
        "adam": lambda p: optim.Adam(p),
        "adamw": lambda p: optim.AdamW(p),
        "adamw-loop": lambda p: optim.AdamW(p, foreach=False),
        "adamw-fused": lambda p: optim.AdamW(p, fused=True),
        "rmsprop": lambda p: optim.RMSprop(p),
        "adagrad": lambda p: optim.Adagrad(p),
        "adafactor": lambda p: optim.Adafactor(p),
    }[name](parameters)


def make_batch(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets on the GPU."""
    if case.model == "mlp":
        return (
            torch.randn(case.batch, 1024, device="cuda"),
            torch.randint(0, 10, (case.batch,), device="cuda"),
        )
    if case.model in IMAGE:
        side = IMAGE[case.model]
        x = torch.randn(case.batch, 3, side, side, device="cuda")
        if case.option == "channels_last":
            x = x.to(memory_format=torch.channels_last)
        shape = (case.batch, side, side) if case.model == "unet" else (case.batch,)
        return x, torch.randint(0, 2, shape, device="cuda")
    context = 512 if case.size != "small" else CONTEXT[case.model]
    tokens = torch.randint(0, 4096, (case.batch, context), device="cuda")
    return tokens, torch.randint(0, 4096, (case.batch, context), device="cuda")


def build(case: Case) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    """Model, optimizer and step of one configuration, on "cuda"."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # the null GPU has no cuDNN attention, nor cuDNN recurrent nets
    with torch.device("cuda"), torch.backends.cudnn.flags(enabled=case.model != "lstm"):
        model = make_model(case.model, case.size)
    if case.precision == "bf16":
        model = model.bfloat16()
    if case.option == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if case.option == "checkpoint":
        model.checkpointed = True
    optimizer = make_optimizer(case.optimizer, model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=case.precision == "fp16-amp")
    dtype = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}.get(case.precision)
    average = copy.deepcopy(model) if case.option == "ema" else None

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            out = model(x)
            if case.model == "unet":
                return F.cross_entropy(out, y)
            return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

    def step() -> None:
        rounds = 4 if case.option == "accumulate" else 1
        if case.option == "zero_first":
            optimizer.zero_grad(set_to_none=False)
        for _ in range(rounds):
            x, y = make_batch(case)
            if case.precision == "bf16" and x.is_floating_point():
                x = x.bfloat16()
            loss = loss_of(x, y) / rounds
            scaler.scale(loss).backward()
        if case.option == "clip":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if case.option != "zero_first":
            optimizer.zero_grad(set_to_none=True)
        if average is not None:
            with torch.no_grad():
                for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(value, 0.01)

    return model, optimizer, step


def rule_of_thumb(model: nn.Module) -> int:
    """Four times the parameters' bytes: weights, gradients and Adam's two states."""
    return 4 * sum(p.numel() * p.element_size() for p in model.parameters()) + math.ceil(0)

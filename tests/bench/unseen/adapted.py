"""Vision and adapters: LoRA on a frozen bf16 model, segmentation, quantised codes, channels last, retrieval."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CUDA = "cuda"


class _Adapter(nn.Module):
    """A frozen linear layer with a trained product of two thin matrices beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) * 0.01)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + 2.0 * (F.dropout(x, 0.05).to(self.down.dtype) @ self.down.T @ self.up.T).to(x.dtype)


class _Decoder(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.norm, self.wide_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (8, -1)).transpose(1, 2) for t in self.mix(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.wide_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def low_rank_adapters() -> tuple[Any, Any, Any]:
    """A frozen bf16 decoder with float adapters in its attention, paged through checkpoints."""
    from torch.utils.checkpoint import checkpoint

    words = nn.Embedding(8000, 512).to(CUDA, torch.bfloat16).requires_grad_(False)
    blocks = nn.ModuleList(_Decoder() for _ in range(4)).to(CUDA, torch.bfloat16).requires_grad_(False)
    for block in blocks:
        block.mix, block.out = _Adapter(block.mix).to(CUDA), _Adapter(block.out).to(CUDA)
    model = nn.ModuleList([words, blocks])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4)

    def step() -> None:
        text = torch.randint(0, 8000, (4, 192), device=CUDA)
        x = words(text).requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=True)
        logits = x @ words.weight.T
        F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), text[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def segmentation() -> tuple[Any, Any, Any]:
    """Dilated convolutions, pooled context, an auxiliary head, upsampled logits with pixels left out."""

    def layer(narrow: int, wide: int, dilation: int = 1, stride: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(narrow, wide, 3, stride, dilation, dilation, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(wide), nn.ReLU(inplace=True))

    stem, body = nn.Sequential(layer(3, 32, stride=2), layer(32, 64, stride=2)), layer(64, 128, 2)
    branches = nn.ModuleList(layer(128, 64, rate) for rate in (6, 12, 18))
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(128, 64, 1), nn.ReLU())
    heads = nn.ModuleList([nn.Conv2d(256, 21, 1), nn.Conv2d(64, 21, 1)])
    model = nn.ModuleList([stem, body, branches, pooled, heads]).to(CUDA)
    optimizer = torch.optim.SGD(
        [{"params": stem.parameters(), "lr": 0.001}, {"params": [*body.parameters(), *branches.parameters()]}],
        lr=0.01,
        momentum=0.9,
    )
    optimizer.add_param_group({"params": [*pooled.parameters(), *heads.parameters()]})

    def step() -> None:
        image = torch.randn(4, 3, 128, 128, device=CUDA)
        label = torch.randint(0, 21, (4, 128, 128), device=CUDA)
        early = stem(image)
        late = body(early)
        parts = [branch(late) for branch in branches]
        parts.append(F.interpolate(pooled(late), late.shape[-2:], mode="bilinear", align_corners=False))
        loss = torch.zeros((), device=CUDA)
        for head, features, weight in ((heads[0], torch.cat(parts, 1), 1.0), (heads[1], early, 0.4)):
            logits = F.interpolate(head(features), (128, 128), mode="bilinear", align_corners=False)
            loss = loss + weight * F.cross_entropy(logits, label, ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


def quantised_codes() -> tuple[Any, Any, Any]:
    """A VQ-VAE: nearest codes by distance, gradients passed straight through, the codebook a running average."""
    encoder = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1)).to(CUDA)
    decoder = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)).to(CUDA)
    model = nn.ModuleList([encoder, decoder])
    codes = torch.randn(512, 64, device=CUDA)
    sums, counts = codes.clone(), torch.ones(512, device=CUDA)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)

    def step() -> None:
        nonlocal codes
        image = torch.rand(32, 3, 64, 64, device=CUDA)
        z = encoder(image)
        flat = z.permute(0, 2, 3, 1).reshape(-1, 64)
        far = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ codes.t() + codes.pow(2).sum(1)
        nearest = far.argmin(1)
        taken = F.one_hot(nearest, 512).type(flat.dtype)
        with torch.no_grad():
            counts.mul_(0.99).add_(taken.sum(0), alpha=0.01)
            sums.mul_(0.99).add_(taken.t() @ flat, alpha=0.01)
            codes = sums / counts.unsqueeze(1)
        quantised = F.embedding(nearest, codes).view(32, 16, 16, 64).permute(0, 3, 1, 2)
        passed = z + (quantised - z).detach()
        loss = F.l1_loss(decoder(passed), image) + 0.25 * F.mse_loss(quantised.detach(), z)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


class _Bottleneck(nn.Module):
    def __init__(self, wide: int, narrow: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(wide, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, 4 * narrow, 1, bias=False),
            nn.BatchNorm2d(4 * narrow),
        )
        self.short = nn.Sequential(nn.Conv2d(wide, 4 * narrow, 1, stride, bias=False), nn.BatchNorm2d(4 * narrow))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.body(x).add_(self.short(x)))


def channels_last_resnet() -> tuple[Any, Any, Any]:
    """Bottlenecks in channels last and bf16 autocast, mixed images, smoothed labels, Nesterov."""
    stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
    )
    body = nn.Sequential(_Bottleneck(64, 32), _Bottleneck(128, 64, 2), _Bottleneck(256, 128, 2))
    model = nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    model = model.to(CUDA, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9, weight_decay=5e-5, nesterov=True)

    def step() -> None:
        image = torch.randn(16, 3, 128, 128, device=CUDA).contiguous(memory_format=torch.channels_last)
        label = torch.randint(0, 1000, (16,), device=CUDA)
        image = image.mul(0.7).add_(image.roll(1, 0).mul_(0.3))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(image)
            loss = 0.7 * F.cross_entropy(out, label, label_smoothing=0.1)
            loss = loss + 0.3 * F.cross_entropy(out, label.roll(1, 0), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


PROGRAMS = {
    "low-rank adapters": low_rank_adapters,
    "segmentation": segmentation,
    "quantised codes": quantised_codes,
    "channels-last ResNet": channels_last_resnet,
}

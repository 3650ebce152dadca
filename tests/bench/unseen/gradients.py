"""Steps that take gradients in unusual ways: of gradients, for each sample, recomputed, offloaded, accumulated."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

CUDA = "cuda"


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 8, dropout=0.1, batch_first=True)
        self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1))
        self.narrow = nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]

    def forward(self, x: Tensor) -> Tensor:
        x = self.attend(x)
        return x + self.narrow(self.wide(x))


def inner_loop() -> tuple[Any, Any, Any]:
    """Meta-learning: three differentiable inner updates for each of two tasks, then the outer one."""
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 5)
    ).to(CUDA)
    outer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        outer.zero_grad()
        total = torch.zeros((), device=CUDA)
        for _ in range(2):
            x, y = torch.randn(100, 1, 28, 28, device=CUDA), torch.randint(0, 5, (100,), device=CUDA)
            weights = dict(model.named_parameters())
            for _ in range(3):
                loss = F.cross_entropy(functional_call(model, weights, (x[:25],)), y[:25])
                slopes = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)
                weights = {name: w - 0.01 * s for (name, w), s in zip(weights.items(), slopes, strict=True)}
            total = total + F.cross_entropy(functional_call(model, weights, (x[25:],)), y[25:])
        total.backward()
        outer.step()

    return model, outer, step


def private_gradients() -> tuple[Any, Any, Any]:
    """A gradient for every sample by vmap, clipped, summed and blurred."""
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (x.unsqueeze(0),)), y.unsqueeze(0))

    def step() -> None:
        x, y = torch.randn(128, 784, device=CUDA), torch.randint(0, 10, (128,), device=CUDA)
        weights = {name: p.detach() for name, p in model.named_parameters()}
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(weights, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        factor = (1 / (norms + 1e-6)).clamp(max=1)
        for name, parameter in model.named_parameters():
            clipped = torch.einsum("n,n...->...", factor, each[name])
            parameter.grad = (clipped + torch.randn_like(clipped)) / 128
        optimizer.step()

    return model, optimizer, step


def nested_checkpoints() -> tuple[Any, Any, Any]:
    """Checkpointed pairs of blocks whose attention is checkpointed once more, and a checkpointed sequence behind."""
    blocks = nn.ModuleList(_Block(256) for _ in range(4)).to(CUDA)
    tail = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)))
    tail = tail.to(CUDA)
    model = nn.ModuleList([blocks, tail])
    optimizer = torch.optim.NAdam(model.parameters())

    def pair(x: Tensor, first: _Block, second: _Block) -> Tensor:
        for block in (first, second):
            x = checkpoint(block.attend, x, use_reentrant=False)
            x = x + block.narrow(block.wide(x))
        return x

    def step() -> None:
        x = torch.randn(16, 128, 256, device=CUDA, requires_grad=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = x
            for first, second in zip(blocks[::2], blocks[1::2], strict=True):
                y = checkpoint(pair, y, first, second, use_reentrant=False)
            y = checkpoint_sequential(tail, 2, y, use_reentrant=False)
        y.float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def offloaded_activations() -> tuple[Any, Any, Any]:
    """What autograd saves goes to the host, and comes back in backward."""
    model = nn.Sequential(*(_Block(256) for _ in range(4))).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        x = torch.randn(16, 128, 256, device=CUDA)
        with torch.autograd.graph.save_on_cpu():
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def accumulated_and_scaled() -> tuple[Any, Any, Any]:
    """Four small batches of fp16 autocast to one clipped update; gradients are zeroed in place."""
    model = nn.Sequential(nn.Linear(512, 512), *(_Block(512) for _ in range(2)), nn.Linear(512, 1000)).to(CUDA)
    optimizer = torch.optim.RAdam(model.parameters(), weight_decay=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)

    def step() -> None:
        for _ in range(4):
            x, y = torch.randn(4, 128, 512, device=CUDA), torch.randint(0, 1000, (4, 128), device=CUDA)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x).transpose(1, 2), y) / 4
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)

    return model, optimizer, step


def lengths_that_vary() -> tuple[Any, Any, Any]:
    """Sequences of another length in each step; the last step's output is kept for a log."""
    model = nn.Sequential(*(_Block(256) for _ in range(3)), nn.Linear(256, 2000)).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters())
    count, log = 0, {}

    def step() -> None:
        nonlocal count
        length = (96, 224, 160)[count % 3]
        out = model(torch.randn(8, length, 256, device=CUDA))
        loss = F.cross_entropy(out.flatten(0, 1), torch.randint(0, 2000, (8 * length,), device=CUDA))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log["output"], log["loss"] = out.detach(), loss.item()
        count += 1

    return model, optimizer, step


PROGRAMS = {
    "meta-learning": inner_loop,
    "per-sample gradients": private_gradients,
    "nested checkpoints": nested_checkpoints,
    "activations on the host": offloaded_activations,
    "accumulation, scaler, clipping": accumulated_and_scaled,
    "lengths that vary": lengths_that_vary,
}

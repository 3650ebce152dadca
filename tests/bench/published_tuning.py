"""A language model adapted as the torchtune project does it, written anew: for published peaks of its recipes.

Llama 3.1 in bf16, two rows packed to 2048 tokens, the logits in eight parts, blocks and loss compiled. Full tuning on
one GPU steps each parameter as soon as its gradient is there, with states that lie outside PyTorch's allocator (a paged
optimizer); adapters have rank 8 (16 of the 70B model) on queries and values.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from tests.bench.published_ranks import SIZES, WORDS, Block

ROWS, LENGTH, PARTS = 2, 2048, 8
_BLOCK = 64
"""Numbers with one scale, of a quantized weight."""
RANKS = {"8B": 8, "70B": 16}
"""Of the adapters."""
Made = tuple[nn.Module, torch.optim.Optimizer | None, Callable[[], None]]


class _Adapted(nn.Module):
    """A frozen layer and a small product beside it."""

    def __init__(self, layer: Any, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.lora_a = nn.Linear(layer.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 2.0 * self.lora_b(self.lora_a(x))


class _Unpacked(torch.autograd.Function):
    """A product with a weight in four bits, unpacked for it in forward and again in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(packed, scales)
        return x @ _unpacked(packed, scales).t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient @ _unpacked(*ctx.saved_tensors), None, None


def _unpacked(packed: Tensor, scales: Tensor) -> Tensor:
    both = torch.stack((packed >> 4, packed & 15), dim=-1).flatten(1).view(packed.shape[0], -1, _BLOCK)
    return (both.to(torch.bfloat16) * scales.to(torch.bfloat16).unsqueeze(-1)).flatten(1)


class _Quantized(nn.Module):
    """A frozen layer in four bits, with a scale of eight for each block of numbers."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        rows, columns = layer.out_features, layer.in_features
        self.in_features, self.out_features = columns, rows
        self.register_buffer("packed", torch.empty(rows, columns // 2, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(rows, columns // _BLOCK, dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return _Unpacked.apply(x, self.packed, self.scales)


class _Tuned(nn.Module):
    def __init__(self, size: str, kept: str) -> None:
        super().__init__()
        width, blocks, heads, shared, inner = SIZES[size]
        self.tok_embeddings = nn.Embedding(WORDS, width)
        self.register_buffer("turns", torch.empty(LENGTH, width // heads // 2, dtype=torch.complex64))
        self.layers = nn.ModuleList(Block(width, heads, shared, inner, kept) for _ in range(blocks))
        self.norm = nn.RMSNorm(width, 1e-5)
        self.output = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.turns)
        return [self.output(part) for part in self.norm(h).chunk(PARTS, dim=1)]


def _quantize(model: _Tuned) -> None:
    for layer in model.layers:
        for part in (layer.attention, layer.feed_forward):
            for name, linear in list(part.named_children()):
                setattr(part, name, _Quantized(linear))


def _adapt(model: _Tuned, rank: int) -> None:
    model.requires_grad_(False)
    for layer in model.layers:
        for name in ("wq", "wv"):
            setattr(layer.attention, name, _Adapted(getattr(layer.attention, name), rank))


def _shard(model: _Tuned, offloaded: bool, ends: bool) -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    dist.init_process_group("nccl")
    given: dict[str, Any] = {"offload_policy": CPUOffloadPolicy()} if offloaded else {}
    for layer in (*model.layers, *((model.output, model.tok_embeddings) if ends else ())):
        fully_shard(layer, **given)
    fully_shard(model, **given)


def _to_host(tensor: Tensor) -> Any:
    """What a graph saves, offloaded; parameters stay."""
    if isinstance(tensor, nn.Parameter) or tensor.nbytes < 1024 or (tensor._base is not None and tensor._base.is_leaf):
        return tensor
    return tensor.cpu(), tensor.device


def _from_host(saved: Any) -> Tensor:
    return saved if isinstance(saved, Tensor) else saved[0].to(saved[1])


def tuned(
    size: str,
    *,
    adapters: bool,
    kept: str,
    sharded: bool = False,
    offloaded: bool = False,
    ends: bool = False,
    waiting: bool = False,
    quantized: bool = False,
) -> Made:
    """Model, optimizer and step.

    Args:
        size: A key of `SIZES`.
        adapters: Only those are trained; else all parameters.
        kept: "none": checkpoints of blocks; "all": no checkpoints.
        sharded: Over all processes.
        offloaded: Parameters, gradients and states are on the host.
        ends: Embedding and output are sharded by themselves, not together.
        waiting: What the graph saves waits on the host.
        quantized: Frozen layers are in four bits.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = _Tuned(size, kept)
            if quantized:
                _quantize(model)
            if adapters:
                _adapt(model, RANKS[size])
    finally:
        torch.set_default_dtype(before)
    for layer in model.layers:
        layer.compile()
    if sharded:
        _shard(model, offloaded, ends)
    model.to_empty(device="cpu" if offloaded else "cuda")
    model.turns = model.turns.to("cuda")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-5, fused=True) if adapters or sharded else None
    if optimizer is None:
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(_step_at_once)

    @torch.compile
    def part_of_loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, reduction="sum")

    def loss_of(tokens: Tensor, labels: Tensor) -> Tensor:
        with saved_tensors_hooks(_to_host, _from_host) if waiting else contextlib.nullcontext():
            logits: Any = model(tokens)
        ends = [part.reshape(-1) for part in labels.chunk(PARTS, dim=1)]
        logits = [part.reshape(-1, part.size(-1)) for part in logits]
        total: Any = 0.0
        for part, end in zip(logits, ends, strict=True):
            total += part_of_loss(part, end)
        return total / math.prod(labels.shape)

    def step() -> None:
        tokens, labels = (torch.randint(0, WORDS, (ROWS, LENGTH), device="cuda") for _ in range(2))
        loss_of(tokens, labels).backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return model, optimizer, step


def _step_at_once(parameter: Tensor) -> None:
    parameter.grad = None
